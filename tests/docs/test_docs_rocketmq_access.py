"""The page about RocketMQ is correct about users, permissions and certificates, against servers that require them."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from doc_pages import ROOT

from mqgate import bootstrap
from mqgate.cli.doctor_rocketmq import run_checks
from mqgate.rocketmq import NotSent, RocketMQClient
from mqgate.settings import MessageSettings, RocketMQSettings, Settings, SqliteSettings
from mqgate.stack import Stack
from secured_stack import BROKER, ROOT_USER, Secured, make_authority, secured_stack

PAGE = ROOT / "docs" / "how-to" / "run-on-rocketmq.md"
CREATE_USER, CREATE_ACL = 3001, 3006


@pytest.fixture(scope="module")
def secured(rocketmq: Stack) -> Iterator[Secured]:
    """Skipped where the other stack is."""
    assert rocketmq.name_server
    with secured_stack() as built:
        yield built


def _settings(secured: Secured, directory: Path, user: str, secret: str) -> Settings:
    return Settings(
        messages=MessageSettings(engine="rocketmq"),
        sqlite=SqliteSettings(directory=str(directory / "data"), synchronous="normal"),
        rocketmq=RocketMQSettings(
            name_servers=(secured.name_server,),
            namespace="shop",
            access_key=user,
            secret_key=secret,
            tls=True,
            tls_ca=str(secured.ca),
        ),
    )


async def _make_user(secured: Secured, user: str, policies: dict[str, list[str]]) -> None:
    client = RocketMQClient([secured.name_server], credentials=ROOT_USER)
    await client.routes.brokers()
    account = {"username": user, "password": f"{user}-secret", "userType": "Normal"}
    await client.brokers.call(BROKER, CREATE_USER, {"username": user}, json.dumps(account).encode())
    entries = [
        {"resource": resource, "actions": actions, "sourceIps": [], "decision": "Allow"}
        for resource, actions in policies.items()
    ]
    acl = {"subject": f"User:{user}", "policies": [{"policyType": "Custom", "entries": entries}]}
    await client.brokers.call(BROKER, CREATE_ACL, {"subject": f"User:{user}"}, json.dumps(acl).encode())
    await client.close()


def _policies() -> dict[str, list[str]]:
    """Return the permissions that the page lists."""
    found = re.findall(r"^\| `((?:Topic|Group):[^`]+)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {resource: re.findall(r"`(\w+)`", actions) for resource, actions in found}


async def _live(api: httpx.AsyncClient) -> list[tuple[str, int]]:
    """Use a topic from its registration to its deletion. Return every step and its status."""
    steps: list[tuple[str, int]] = []

    async def step(method: str, path: str, **body: object) -> httpx.Response:
        response = await api.request(method, path, json=body or None)
        steps.append((f"{method} {path}", response.status_code))
        return response

    # A broker that has just started may answer its first questions late.
    for _ in range(20):
        if (await step("GET", "/readyz")).is_success:
            break
        steps.pop()
    await step("PUT", "/v1/topics/orders", queues=2)
    await step("PUT", "/v1/groups/billing", topic="orders", maxAttempts=1)
    published = (await step("POST", "/v1/topics/orders/messages", body="x", key="k")).json()
    received = (await step("POST", "/v1/groups/billing/receive", wait=20)).json()
    await step("POST", "/v1/groups/billing/nack", receipt=received["messages"][0]["receipt"])
    await step("POST", "/v1/groups/billing/dead-letters/redrive", ids=[published["id"]])
    received = (await step("POST", "/v1/groups/billing/receive", wait=20)).json()
    await step("POST", "/v1/groups/billing/ack", receipt=received["messages"][0]["receipt"])
    await step("GET", f"/v1/topics/orders/messages/{published['id']}")
    await step("POST", "/v1/groups/billing/seek", to="earliest", reason="test")
    await step("DELETE", "/v1/groups/billing")
    await step("DELETE", "/v1/topics/orders")
    return steps


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_permissions_on_the_page_are_sufficient(secured: Secured, tmp_path: Path) -> None:
    """The doctor must agree. Operators who grant fewer would find out in production."""
    policies = _policies()
    assert len(policies) == 3
    await _make_user(secured, "gate", policies)
    settings = _settings(secured, tmp_path, "gate", "gate-secret")

    async with bootstrap.gateway(settings) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            steps = await _live(api)

    assert len(steps) == 13
    assert not [step for step in steps if not 200 <= step[1] < 300]
    checks = {check.check: check.status for check in await run_checks(settings)}
    assert checks[f"{BROKER}: reachable"] == "ok"
    assert "fail" not in checks.values()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_doctor_and_the_gateway_report_missing_permissions(secured: Secured, tmp_path: Path) -> None:
    """No user, a wrong password or too few permissions: one line that names it, and never a 500."""
    await _make_user(secured, "guest", {"Topic:other%*": ["Get"]})
    guest = _settings(secured, tmp_path, "guest", "guest-secret")
    details = []
    for user, secret in (("", ""), ("guest", "wrong"), ("guest", "guest-secret")):
        settings = replace(guest, rocketmq=replace(guest.rocketmq, access_key=user, secret_key=secret))
        details += [check.detail for check in await run_checks(settings) if check.check == f"{BROKER}: access"]

    async with bootstrap.gateway(guest) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            refused = await api.put("/v1/topics/orders", json={})
            ready = await api.get("/readyz")

    expected = ("set [rocketmq] access_key", "signature", "Topic:TBW102")
    assert all(words in detail for words, detail in zip(expected, details, strict=True)), details
    assert (refused.status_code, refused.json()["code"]) == (502, "storage_refused")
    assert "Topic:shop%orders" in refused.json()["detail"]
    assert (ready.status_code, ready.json()["parts"]["log"]) == (503, "storage_unavailable")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("host", "trusts", "checks_host", "goes_through"),
    [
        ("127.0.0.1", True, True, True),
        ("localhost", True, True, False),
        ("localhost", True, False, True),
        ("localhost", False, False, False),
    ],
)
async def test_the_certificate_chain_is_checked_without_host_names(
    secured: Secured, tmp_path: Path, *, host: str, trusts: bool, checks_host: bool, goes_through: bool
) -> None:
    """Certificates seldom name the addresses of routes. Without the name the authority must still be checked."""
    make_authority(tmp_path / "other.pem")
    _, _, port = secured.name_server.partition(":")
    settings = RocketMQSettings(
        name_servers=(f"{host}:{port}",),
        tls=True,
        tls_ca=str(secured.ca if trusts else tmp_path / "other.pem"),
        tls_check_host=checks_host,
    )
    client = bootstrap.rocketmq_client(settings)

    if goes_through:
        assert [broker.name for broker in await client.routes.brokers()] == [BROKER]
    else:
        with pytest.raises(NotSent, match="CERTIFICATE_VERIFY_FAILED"):
            await client.routes.brokers()

    await client.close()
