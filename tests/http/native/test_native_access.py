"""API keys: permissions, and the errors without them."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from native_calls import publish, put, receive, refused

from mqgate import bootstrap
from mqgate.settings import HttpSettings, Settings, SettingsInvalid
from mqgate.testing.clock import ManualClock

ADMIN_ONLY = [
    ("GET", "/v1/topics"),
    ("PUT", "/v1/topics/new"),
    ("GET", "/v1/topics/orders"),
    ("DELETE", "/v1/topics/orders"),
    ("GET", "/v1/topics/orders/messages"),
    ("GET", "/v1/topics/orders/messages/x"),
    ("GET", "/v1/topics/orders/queues"),
    ("GET", "/v1/topics/orders/queues/local:0/messages"),
    ("GET", "/v1/producers"),
    ("PUT", "/v1/producers/new"),
    ("DELETE", "/v1/producers/shop"),
    ("GET", "/v1/groups"),
    ("PUT", "/v1/groups/workers"),
    ("PATCH", "/v1/groups/workers"),
    ("DELETE", "/v1/groups/workers"),
    ("POST", "/v1/groups/workers/seek"),
    ("POST", "/v1/groups/workers/pause"),
    ("POST", "/v1/groups/workers/resume"),
    ("POST", "/v1/groups/workers/dead-letters/purge"),
    ("GET", "/v1/audit"),
    ("GET", "/metrics"),
    ("GET", "/v1/keys"),
    ("POST", "/v1/keys"),
    ("DELETE", "/v1/keys/x"),
]
GROUPS_OWN = [
    ("POST", "/v1/groups/workers/receive", 200),
    ("GET", "/v1/groups/workers/lag", 200),
    ("GET", "/v1/groups/workers", 200),
    ("GET", "/v1/groups/workers/clients", 200),
    ("GET", "/v1/groups/workers/dead-letters", 200),
    ("GET", "/v1/groups/workers/dead-letters/x", 404),
    ("POST", "/v1/groups/workers/ack", 400),
    ("POST", "/v1/groups/workers/nack", 400),
    ("POST", "/v1/groups/workers/extend", 400),
]


class Keys:
    """The keys of an admin, a producer and a group."""

    def __init__(self, api: httpx.AsyncClient) -> None:
        self.api = api
        self.text: dict[str, str] = {}
        self.id: dict[str, str] = {}

    async def make(self, name: str, **body: Any) -> None:
        response = await self.call("POST", "/v1/keys", "admin" if self.text else None, json=body)
        assert response.status_code == 201, response.text
        self.text[name], self.id[name] = response.json()["key"], response.json()["id"]

    async def call(self, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.text.get(key, key)}"} if key else {}
        return await self.api.request(method, path, headers=headers, **more)


@pytest.fixture
async def keys(shop: httpx.AsyncClient) -> Keys:
    await put(shop, "producers/shop", topic="orders")
    await put(shop, "topics/other", queues=1)
    await put(shop, "groups/others", topic="orders", mode="queue")
    keys = Keys(shop)
    await keys.make("admin", role="admin")
    await keys.make("producer", producer="shop")
    await keys.make("group", group="workers")
    return keys


async def test_without_keys_every_caller_is_admin(shop: httpx.AsyncClient) -> None:
    """The info response reports that the gateway is open."""
    assert (await shop.get("/v1/info")).json()["open"] is True
    assert (await shop.get("/v1/keys")).json()["items"] == []


async def test_after_the_first_key_every_call_requires_a_key(keys: Keys) -> None:
    """Only the health checks need none."""
    others = [("GET", "/v1/info"), ("GET", "/nowhere"), ("PATCH", "/v1/topics"), ("PUT", "/v1/topics/orders?colour=x")]
    for method, path in [*ADMIN_ONLY, *((m, p) for m, p, _ in GROUPS_OWN), *others]:
        response = await keys.call(method, path)

        refused(response, 401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
    refused(await keys.call("POST", "/v1/topics/orders/messages", content=b"x"), 401, "unauthorized")
    refused(await keys.call("GET", "/nowhere", "group"), 404, "route_not_found")
    refused(await keys.call("PATCH", "/v1/topics", "group"), 405, "method_not_allowed")
    for path in ("/livez", "/readyz"):
        assert (await keys.call("GET", path)).status_code == 200


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer nonsense", "Bearer mqk__", "Bearer mqk_x_y", "Bearer é", "bearer"],
)
async def test_a_wrong_key_is_refused(keys: Keys, header: str) -> None:
    """The response is the same for every kind of wrong key."""
    response = await keys.api.get("/v1/topics", headers=[(b"authorization", header.encode())])

    refused(response, 401, "unauthorized")


async def test_a_key_with_another_secret_is_refused(keys: Keys) -> None:
    """The id of a key is not secret."""
    refused(await keys.call("GET", "/v1/topics", f"mqk_{keys.id['admin']}_guess"), 401, "unauthorized")
    refused(await keys.call("GET", "/v1/topics", keys.text["admin"][:-1]), 401, "unauthorized")


async def test_an_admin_key_permits_everything(keys: Keys) -> None:
    """The Authorization scheme is case-insensitive, as RFC 9110 requires."""
    response = await keys.api.get("/v1/topics", headers={"authorization": f"bearer {keys.text['admin']}"})

    assert response.status_code == 200
    assert (await keys.call("POST", "/v1/topics/orders/messages", "admin", content=b"x")).status_code == 201
    assert (await keys.call("POST", "/v1/groups/workers/receive", "admin")).status_code == 200


@pytest.mark.parametrize("who", ["producer", "group"])
async def test_other_operations_require_an_admin_key(keys: Keys, who: str) -> None:
    """The response is 403 also for missing entries, so that a key does not reveal what exists."""
    for method, path in ADMIN_ONLY:
        refused(await keys.call(method, path, who), 403, "forbidden")


@pytest.mark.parametrize(("method", "path", "status"), GROUPS_OWN)
async def test_a_group_key_permits_receive_settle_and_lag(keys: Keys, method: str, path: str, status: int) -> None:
    """It is limited to its own group. A producer key permits none of these."""
    body: dict[str, Any] = {"json": {"receipt": "forged"}} if status == 400 else {}

    assert (await keys.call(method, path, "group", **body)).status_code == status
    refused(await keys.call(method, path.replace("workers", "others"), "group", **body), 403, "forbidden")
    refused(await keys.call(method, path.replace("workers", "nobody"), "group", **body), 403, "forbidden")
    refused(await keys.call(method, path, "producer", **body), 403, "forbidden")


async def test_a_producer_key_permits_publishing_to_its_topic(keys: Keys) -> None:
    """It permits no other topic or producer. A group key does not permit publishing."""
    own = await keys.call("POST", "/v1/topics/orders/messages", "producer", content=b"x")
    named = await keys.call("POST", "/v1/topics/orders/messages?producer=shop", "producer", content=b"x")

    assert (own.status_code, named.status_code) == (201, 201)
    refused(await keys.call("POST", "/v1/topics/other/messages", "producer", content=b"x"), 403, "forbidden")
    other = "/v1/topics/orders/messages?producer=other"
    refused(await keys.call("POST", other, "producer", content=b"x"), 403, "forbidden")
    refused(await keys.call("POST", "/v1/topics/orders/messages", "group", content=b"x"), 403, "forbidden")


async def test_the_text_of_a_key_is_returned_once(keys: Keys) -> None:
    """The list shows permissions, never the text."""
    listed = await keys.call("GET", "/v1/keys", "admin")

    assert {(item["id"], item["producer"], item["group"], item["role"]) for item in listed.json()["items"]} == {
        (keys.id["admin"], None, None, "admin"),
        (keys.id["producer"], "shop", None, None),
        (keys.id["group"], None, "workers", None),
    }
    for text in keys.text.values():
        assert text.removeprefix("mqk_").partition("_")[2] not in listed.text


async def test_keys_are_stored_as_hashes(keys: Keys, settings: Settings) -> None:
    """A reader of the database file finds no usable key."""
    content = b"".join(file.read_bytes() for file in sorted(Path(settings.sqlite.directory).iterdir()))  # noqa: ASYNC240

    assert keys.id["admin"].encode() in content
    for text in keys.text.values():
        assert text.removeprefix("mqk_").partition("_")[2].encode() not in content


async def test_a_deleted_key_is_refused(keys: Keys) -> None:
    """The deletion takes effect immediately."""
    deleted = await keys.call("DELETE", f"/v1/keys/{keys.id['group']}", "admin")

    assert deleted.status_code == 204
    refused(await keys.call("GET", "/v1/groups/workers/lag", "group"), 401, "unauthorized")
    refused(await keys.call("DELETE", f"/v1/keys/{keys.id['group']}", "admin"), 404, "key_not_found")


async def test_a_key_expires_at_its_instant(keys: Keys, clock: ManualClock) -> None:
    """It is valid until then."""
    await keys.make("guest", group="workers", expiresAt="2026-01-01T13:00:00Z")

    clock.advance(timedelta(hours=1) - timedelta(milliseconds=1))
    before = await keys.call("GET", "/v1/groups/workers/lag", "guest")
    clock.advance(0.001)
    after = await keys.call("GET", "/v1/groups/workers/lag", "guest")

    assert before.status_code == 200
    refused(after, 401, "unauthorized")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_value"),
        ({"role": "king"}, 400, "invalid_value"),
        ({"role": "admin", "group": "workers"}, 400, "invalid_value"),
        ({"producer": "nobody"}, 404, "producer_not_found"),
        ({"group": "nobody"}, 404, "group_not_found"),
        ({"role": "admin", "expiresAt": "2025-01-01T00:00:00Z"}, 400, "invalid_value"),
        ({"role": "admin", "expiresAt": "soon"}, 400, "invalid_value"),
    ],
)
async def test_an_invalid_key_request_creates_no_key(
    shop: httpx.AsyncClient, body: dict[str, Any], status: int, code: str
) -> None:
    """The gateway stays open."""
    refused(await shop.post("/v1/keys", json=body), status, code)

    assert (await shop.get("/v1/info")).json()["open"] is True


async def test_a_gateway_without_keys_binds_to_loopback_only(settings: Settings) -> None:
    """For any other address the start fails and names the remedy."""
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.org"):  # noqa: S104 - just what must be refused
        with pytest.raises(SettingsInvalid, match="mqgate key create"):
            async with bootstrap.gateway(replace(settings, http=HttpSettings(host=host))):
                pass
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        async with bootstrap.gateway(replace(settings, http=HttpSettings(host=host))):
            pass


async def test_a_gateway_with_a_key_binds_to_any_address(keys: Keys, settings: Settings, gateway: object) -> None:
    """One key is enough."""
    bootstrap.refuse_open_door(replace(settings, http=HttpSettings(host="0.0.0.0")), gateway.access)  # type: ignore[attr-defined]  # noqa: S104


async def test_audit_entries_name_the_key(keys: Keys) -> None:
    """Operators must see who changed what."""
    await keys.call("PUT", "/v1/topics/new", "admin")

    acts = (await keys.call("GET", "/v1/audit", "admin")).json()["items"]

    assert acts[0]["actor"] == f"key {keys.id['admin']}"


async def test_messages_flow_while_keys_are_created(shop: httpx.AsyncClient) -> None:
    """A key of a group does not change the group."""
    await publish(shop, "a")
    keys = Keys(shop)
    await keys.make("admin", role="admin")
    shop.headers["authorization"] = f"Bearer {keys.text['admin']}"

    assert len((await receive(shop))["messages"]) == 1
