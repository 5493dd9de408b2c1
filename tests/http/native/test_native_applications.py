"""Applications: apply, decide, apply in the background, take the key."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
from native_calls import refused

from eventually import until
from mqgate import bootstrap
from mqgate.control.approvals.applier import FIRST_RETRY
from mqgate.core.application import ApplicationState
from mqgate.core.errors import StorageUnavailable
from mqgate.settings import ApprovalSettings, Settings
from people import People

NEW_TOPIC: Mapping[str, Any] = {"kind": "topic", "topic": "orders", "settings": {"queues": 2}, "reason": "a new shop"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, approvals=ApprovalSettings(auto=("pause", "resume:red")))


@pytest.fixture
async def people(api: httpx.AsyncClient) -> People:
    people = People(api)
    await people.admin_key()
    await people.put("teams/red")
    await people.put("teams/blue")
    await people.add_person("ada", "member", "red")
    await people.add_person("bob", "member", "blue")
    await people.add_person("oli", "operator")
    await people.add_person("eve", "operator")
    return people


async def apply(people: People, who: str, **body: Any) -> str:
    response = await people.call(who, "POST", "/v1/applications", json=body)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def decide(people: People, who: str, application: str, action: str, **body: Any) -> httpx.Response:
    return await people.call(who, "POST", f"/v1/applications/{application}/{action}", json=body)


async def state_of(people: People, application: str) -> str:
    return str((await people.call("ada", "GET", f"/v1/applications/{application}")).json()["state"])


async def finished(people: People, application: str, state: str = "applied") -> None:
    """Wait until an approved application has been applied."""

    async def is_finished() -> bool:
        return await state_of(people, application) != "approved"

    await until(is_finished)
    assert await state_of(people, application) == state


async def approved(people: People, who: str, **body: Any) -> str:
    application = await apply(people, who, **body)
    assert (await decide(people, "oli", application, "approve")).status_code == 200
    await finished(people, application)
    return application


async def test_a_member_gets_what_an_operator_approves(people: People) -> None:
    """The whole way: topic, producer, group and key; the key works, and is shown once to the applicant."""
    await approved(people, "ada", **NEW_TOPIC)
    await approved(people, "ada", kind="producer", producer="shop", settings={"topic": "orders"})
    await approved(people, "ada", kind="group", group="billing", settings={"topic": "orders"})
    key = await approved(people, "ada", kind="key", producer="shop")
    for who in ("bob", "oli", "admin"):
        refused(await decide(people, who, key, "key"), 403, "forbidden")

    taken = await decide(people, "ada", key, "key")

    people.headers["shop"] = {"authorization": f"Bearer {taken.json()['key']}"}
    assert (await people.call("shop", "POST", "/v1/topics/orders/messages", json={"body": "x"})).status_code == 201
    refused(await decide(people, "ada", key, "key"), 409, "key_already_taken")
    topic = (await people.call("ada", "GET", "/v1/topics/orders")).json()
    assert (topic["team"], topic["queues"]) == ("red", 2)
    assert taken.json()["key"] not in (await people.call("admin", "GET", "/v1/audit")).text


async def test_of_two_operators_who_decide_at_once_one_wins(people: People) -> None:
    """The other one is told what was decided. Each decision has one audit entry."""
    application = await apply(people, "ada", **NEW_TOPIC)

    both = await asyncio.gather(
        decide(people, "oli", application, "approve"), decide(people, "eve", application, "decline", reason="no")
    )

    assert sorted(response.status_code for response in both) == [200, 409]
    loser = next(response for response in both if response.status_code == 409)
    assert refused(loser, 409, "application_changed")["detail"].startswith(f"Application {application} is ")
    entries = (await people.call("admin", "GET", "/v1/audit")).json()["items"]
    decisions = [entry for entry in entries if entry["action"] in {"approve", "decline"}]
    assert [entry["subject"] for entry in decisions] == [f"application {application}"]


async def test_nobody_approves_an_own_application(people: People) -> None:
    """Four eyes: also not as an operator, and a member approves nothing."""
    application = await apply(people, "oli", **NEW_TOPIC)

    refused(await decide(people, "oli", application, "approve"), 403, "forbidden")
    refused(await decide(people, "ada", application, "approve"), 403, "forbidden")
    assert (await decide(people, "eve", application, "approve")).status_code == 200


async def test_a_decline_needs_a_reason_and_closes_the_application(people: People) -> None:
    """The applicant reads why, and may apply again."""
    application = await apply(people, "ada", **NEW_TOPIC)
    refused(await people.call("bob", "POST", "/v1/applications", json=NEW_TOPIC), 409, "duplicate_application")
    refused(await decide(people, "oli", application, "decline"), 400, "invalid_value", field="reason")

    declined = await decide(people, "oli", application, "decline", reason="use parcels")

    assert declined.json()["decisionReason"] == "use parcels"
    refused(await decide(people, "oli", application, "approve"), 409, "application_changed")
    refused(await decide(people, "ada", application, "withdraw"), 409, "application_changed")
    await apply(people, "bob", **NEW_TOPIC)


async def test_only_the_applicant_withdraws(people: People) -> None:
    """An operator declines instead, so that the history shows who ended it."""
    application = await apply(people, "ada", **NEW_TOPIC)
    for who in ("bob", "oli"):
        refused(await decide(people, who, application, "withdraw"), 403, "forbidden")

    assert (await decide(people, "ada", application, "withdraw")).json()["state"] == "withdrawn"


async def test_a_member_applies_for_the_own_team_only(people: People) -> None:
    """Neither for entries of another team, nor in its name, nor by naming it in the settings."""
    await people.put("topics/orders", team="red")
    await people.put("groups/billing", topic="orders", team="red")
    for body in (
        {"kind": "seek", "group": "billing", "settings": {"to": "latest"}},
        {"kind": "deletion", "topic": "orders"},
        {"kind": "topic", "topic": "orders", "settings": {"queues": 16}},
        {"kind": "key", "group": "billing"},
    ):
        refused(await people.call("bob", "POST", "/v1/applications", json=body), 403, "forbidden")
    other = {"kind": "topic", "topic": "new", "team": "red"}
    refused(await people.call("bob", "POST", "/v1/applications", json=other), 400, "invalid_value", field="team")

    await approved(people, "bob", kind="topic", topic="new", settings={"team": "red"})
    assert (await people.call("bob", "GET", "/v1/topics/new")).json()["team"] == "blue"


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "seek", "topic": "orders"},
        {"kind": "topic", "topic": "orders", "settings": {"colour": 1}},
        {"kind": "topic", "topic": "mqgate_events"},
        {"kind": "topic", "topic": "a b"},
        {"kind": "topic"},
        {"kind": "topic", "topic": "a", "group": "b"},
        {"kind": "nonsense", "topic": "a"},
        {"kind": "seek", "group": "billing", "settings": {}},
        {"kind": "topic", "topic": "orders", "reason": "x" * 1_001},
    ],
)
async def test_a_malformed_application_is_refused_at_once(people: People, body: dict[str, Any]) -> None:
    """Not only after an operator has approved it."""
    assert (await people.call("ada", "POST", "/v1/applications", json=body)).status_code == 400


async def test_the_policy_approves_at_once(people: People) -> None:
    """A kind for all teams, or for one."""
    for team, group in (("red", "billing"), ("blue", "delivery")):
        await people.put("topics/orders")
        await people.put(f"groups/{group}", topic="orders", team=team)
    paused = await apply(people, "bob", kind="pause", group="delivery", reason="incident")
    await finished(people, paused)

    group = (await people.call("bob", "GET", "/v1/groups/delivery")).json()
    assert (group["paused"], group["pauseReason"]) == (True, "incident")
    resumed = await apply(people, "bob", kind="resume", group="delivery")
    assert await state_of(people, resumed) == "submitted"
    own = await apply(people, "ada", kind="resume", group="billing")
    await finished(people, own)


async def test_operations_on_a_group_are_applied(people: People) -> None:
    """Rate, skip, seek and deletion, each with an audit entry that names the application."""
    await people.put("topics/orders", team="red", queues=1)
    await people.put("groups/billing", topic="orders", team="red")
    for _ in range(3):
        await people.call("admin", "POST", "/v1/topics/orders/messages", json={"body": "x"})

    async def lag() -> int:
        return int((await people.call("ada", "GET", "/v1/groups/billing/lag")).json()["lag"])

    await approved(people, "ada", kind="rate", group="billing", settings={"rateLimit": 7})
    assert (await people.call("ada", "GET", "/v1/groups/billing")).json()["rateLimit"]["rate"] == 7
    skipped = await approved(people, "ada", kind="skip", group="billing")
    assert await lag() == 0
    await approved(people, "ada", kind="seek", group="billing", settings={"to": {"local:0": 1}})
    assert await lag() == 2
    await approved(people, "ada", kind="deletion", group="billing")
    refused(await people.call("ada", "GET", "/v1/groups/billing"), 404, "group_not_found")
    entries = (await people.call("admin", "GET", "/v1/audit")).json()["items"]
    assert f"application {skipped}" in {entry["actor"] for entry in entries}


async def test_a_failed_application_says_why_and_can_be_retried(people: People) -> None:
    """The cause is corrected outside; the application does not have to be written again."""
    application = await apply(people, "ada", kind="producer", producer="shop", settings={"topic": "orders"})
    await decide(people, "oli", application, "approve")
    await finished(people, application, "failed")
    shown = (await people.call("ada", "GET", f"/v1/applications/{application}")).json()
    assert "orders is not registered" in shown["error"]

    await people.put("topics/orders")
    assert (await decide(people, "oli", application, "retry")).status_code == 200
    await finished(people, application)
    assert (await people.call("ada", "GET", "/v1/producers/shop")).json()["team"] == "red"


async def test_an_unavailable_broker_is_retried_without_an_operator(
    people: People, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    """Approving while RocketMQ restarts is no failure. A retry must not seek to another position than the first."""
    await people.put("topics/orders", team="red", queues=1)
    await people.put("groups/billing", topic="orders", team="red")
    requests = gateway.applier._requests
    execute, attempts = requests.execute, []

    async def unavailable(application: Any) -> None:
        attempts.append(application.plan)
        if len(attempts) == 1:
            raise StorageUnavailable("broker down")
        await execute(application)

    monkeypatch.setattr(requests, "execute", unavailable)
    application = await apply(people, "ada", kind="skip", group="billing")
    await decide(people, "oli", application, "approve")

    async def has_error() -> bool:
        return (await people.call("ada", "GET", f"/v1/applications/{application}")).json()["error"] == "broker down"

    await until(has_error)
    assert await state_of(people, application) == ApplicationState.APPROVED
    await people.call("admin", "POST", "/v1/topics/orders/messages", json={"body": "arrived meanwhile"})
    clock.advance(FIRST_RETRY)
    gateway.applier.wake()
    await finished(people, application)

    assert attempts == ['{"local:0":0}'] * 2
    assert (await people.call("ada", "GET", "/v1/groups/billing/lag")).json()["lag"] == 1
