"""Lag, clients, seek, pause, rate limits and dead letters."""

from typing import Any

import httpx
import pytest
from native_calls import bodies, lag, publish, put, receive, refused, settle

from mqgate.testing.clock import ManualClock

SEEK = "/v1/groups/workers/seek"
DEAD = "/v1/groups/workers/dead-letters"


async def fail(api: httpx.AsyncClient, group: str = "workers", **nack: Any) -> None:
    """Receive a batch and nack it."""
    receipt = (await receive(api, group))["lease"]["receipt"]
    assert (await settle(api, "nack", receipt, group, **nack)).status_code == 200


async def test_lag_is_ready_plus_leased_plus_waiting(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """It is exact while nothing changes, per queue and in total, with the age of the oldest message."""
    await publish(shop, *"abcdef")
    clock.advance(60)
    lease = (await receive(shop, max=2, clientId="ada"))["lease"]

    held = await lag(shop)
    await settle(shop, "nack", lease["receipt"], delay=60)
    waiting = await lag(shop)
    clock.advance(60)
    again = (await receive(shop, max=5))["lease"]["receipt"]
    await settle(shop, "ack", again)
    rest = await lag(shop)

    assert [held[name] for name in ("lag", "ready", "leased", "waiting", "oldestAge")] == [6, 4, 2, 0, 60.0]
    assert [waiting[name] for name in ("lag", "ready", "leased", "waiting")] == [6, 4, 0, 2]
    assert [rest[name] for name in ("lag", "ready", "leased", "waiting", "oldestAge")] == [1, 1, 0, 0, 120.0]
    (queue,) = held["queues"]
    assert (queue["queue"], queue["min"], queue["max"], queue["committed"], queue["cursor"]) == ("local:0", 0, 6, 0, 2)
    assert (queue["lockedUntil"], queue["lastClient"]) == ("2026-01-01T12:01:30.000Z", "ada")
    assert rest["queues"][0]["committed"] == 5
    assert rest["queues"][0]["lastConsumedAt"] == "2026-01-01T12:02:00.000Z"


async def test_without_lag_the_oldest_age_is_null(shop: httpx.AsyncClient) -> None:
    """There is no message whose age could be reported."""
    assert (await lag(shop))["oldestAge"] is None
    assert (await lag(shop))["lag"] == 0


async def test_lag_of_an_unknown_broadcast_client_is_404(shop: httpx.AsyncClient) -> None:
    """A lag request does not register a client."""
    await put(shop, "groups/all", topic="orders", mode="broadcast")

    refused(await shop.get("/v1/groups/all/lag?clientId=eve"), 404, "client_not_found")
    refused(await shop.get("/v1/groups/all/lag?clientId="), 400, "invalid_value", field="clientId")
    refused(await shop.get("/v1/groups/workers/lag?colour=blue"), 400, "unknown_field", field="colour")
    refused(await shop.get("/v1/groups/nobody/lag"), 404, "group_not_found")


async def test_clients_show_addresses_and_held_queues(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """The address is the one of the connection, with and without a clientId."""
    await publish(shop, "a")
    await receive(shop, clientId="ada")
    clock.advance(5)
    await receive(shop)

    items = (await shop.get("/v1/groups/workers/clients")).json()["items"]

    by_name = {item["clientId"]: item for item in items}
    assert by_name["ada"]["holds"] == ["local:0"]
    assert (by_name["ada"]["address"], by_name["ada"]["lastSeen"]) == ("127.0.0.1", "2026-01-01T12:00:00.000Z")
    assert by_name["@127.0.0.1"]["firstSeen"] == "2026-01-01T12:00:05.000Z"


@pytest.mark.parametrize(
    ("to", "landed"),
    [
        ("earliest", 0),
        ("latest", 4),
        ("2026-01-01T12:00:02Z", 2),
        (1_767_268_803_000, 3),
        ("2030-01-01T00:00:00Z", 4),
        ({"local:0": 1}, 1),
    ],
)
async def test_a_seek_moves_to_its_target(shop: httpx.AsyncClient, clock: ManualClock, to: Any, landed: int) -> None:
    """The target is earliest, latest, an instant or offsets. The response has old and new offsets."""
    for body in "abcd":
        await publish(shop, body)
        clock.advance(1)
    await settle(shop, "ack", (await receive(shop, max=2))["lease"]["receipt"])

    dry = await shop.post(SEEK, json={"to": to, "dryRun": True})
    before = (await lag(shop))["queues"][0]["committed"]
    real = await shop.post(SEEK, json={"to": to, "reason": "test"})

    expected = {
        "queue": "local:0",
        "from": 2,
        "to": landed,
        "skipped": max(landed - 2, 0),
        "repeated": max(2 - landed, 0),
    }
    assert dry.json() == {"dryRun": True, "queues": [expected]}
    assert real.json() == {"dryRun": False, "queues": [expected]}
    assert before == 2
    assert bodies(await receive(shop)) == list("abcd")[landed:]


async def test_a_seek_covers_new_queues(shop: httpx.AsyncClient) -> None:
    """A seek to latest also skips the messages of queues that were added later."""
    await put(shop, "topics/orders", queues=3)
    await publish(shop, *"abcdef")

    sought = await shop.post(SEEK, json={"to": "latest"})
    after = await receive(shop)

    assert [queue["queue"] for queue in sought.json()["queues"]] == ["local:0", "local:1", "local:2"]
    assert after["messages"] == []
    assert (await lag(shop))["lag"] == 0


async def test_a_seek_of_one_broadcast_client_does_not_move_others(shop: httpx.AsyncClient) -> None:
    """Every client has its own offsets."""
    await put(shop, "groups/all", topic="orders", mode="broadcast", start="earliest")
    await publish(shop, "a", "b")
    for client in ("ada", "ben"):
        await settle(shop, "nack", (await receive(shop, "all", clientId=client))["lease"]["receipt"], "all")

    await shop.post("/v1/groups/all/seek", json={"to": "latest", "clientId": "ada"})

    assert (await lag(shop, "all", clientId="ada"))["lag"] == 0
    assert (await lag(shop, "all", clientId="ben"))["lag"] == 2


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_value"),
        ({"to": "middle"}, 400, "invalid_value"),
        ({"to": None}, 400, "invalid_value"),
        ({"to": {}}, 400, "invalid_value"),
        ({"to": {"local:0": "1"}}, 400, "invalid_value"),
        ({"to": {"local:0": -1}}, 400, "invalid_value"),
        ({"to": {"local:0": 5}}, 400, "invalid_value"),
        ({"to": {"local:0": 1 << 70}}, 400, "invalid_value"),
        ({"to": {"local:9": 0}}, 404, "queue_not_found"),
        ({"to": {"nonsense": 0}}, 404, "queue_not_found"),
        ({"to": "latest", "clientId": "ada"}, 400, "unsupported_by_mode"),
        ({"to": "latest", "reason": "x" * 1_001}, 400, "invalid_value"),
        ({"to": "latest", "dryRun": "yes"}, 400, "invalid_value"),
        ({"to": "latest", "colour": 1}, 400, "unknown_field"),
    ],
)
async def test_an_invalid_seek_moves_nothing(
    shop: httpx.AsyncClient, body: dict[str, Any], status: int, code: str
) -> None:
    """Not even the valid queues of the request are moved."""
    await publish(shop, "a", "b")

    refused(await shop.post(SEEK, json=body), status, code)

    assert (await lag(shop))["queues"][0]["committed"] == 0


async def test_a_paused_group_receives_nothing_and_accepts_acks(shop: httpx.AsyncClient) -> None:
    """After a resume the group continues at its position."""
    await publish(shop, "a", "b")
    receipt = (await receive(shop, max=1))["lease"]["receipt"]

    paused = await shop.post("/v1/groups/workers/pause", json={"reason": "lunch"})
    during = await receive(shop, ack=[receipt])
    resumed = await shop.post("/v1/groups/workers/resume")
    after = await receive(shop)

    assert (paused.json()["paused"], paused.json()["pauseReason"]) == (True, "lunch")
    assert (during["state"], during["messages"]) == ("paused", [])
    assert [result["outcome"] for result in during["acked"]] == ["applied"]
    assert (resumed.json()["paused"], resumed.json()["pauseReason"]) == (False, None)
    assert bodies(after) == ["b"]


async def test_a_rate_limit_is_exact(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """A change by PATCH applies to the next receive."""
    await publish(shop, *"abcdefgh")
    await shop.patch("/v1/groups/workers", json={"rateLimit": {"rate": 2, "burst": 3}})

    first = await receive(shop)
    starved = await receive(shop, ack=[first["lease"]["receipt"]])
    clock.advance(1)
    second = await receive(shop)

    assert bodies(first) == ["a", "b", "c"]
    assert starved["state"] == "rate_limited"
    assert bodies(second) == ["d", "e"]


async def test_an_exhausted_message_becomes_a_dead_letter(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """It keeps its history and body. Other messages of the batch are not affected."""
    await shop.patch("/v1/groups/workers", json={"maxAttempts": 2})
    (stored, _) = await publish(shop, "poison", "fine", key="k1")
    await fail(shop)
    clock.advance(5)

    await fail(shop, reason="cannot parse")

    (item,) = (await shop.get(DEAD)).json()["items"]
    whole = (await shop.get(f"{DEAD}/{stored['id']}")).json()
    assert item == {
        "id": stored["id"],
        "origin": {"topic": "orders", "queue": "local:0", "offset": 0},
        "deliveries": 2,
        "firstAt": "2026-01-01T12:00:00.000Z",
        "lastAt": "2026-01-01T12:00:05.000Z",
        "reason": "cannot parse",
        "key": "k1",
        "clientId": None,
    }
    assert whole["body"] == "poison"
    assert bodies(await receive(shop)) == ["fine"]


async def test_an_expired_last_lease_of_a_broadcast_client_becomes_a_dead_letter(
    shop: httpx.AsyncClient, clock: ManualClock
) -> None:
    """The dead letter names the client."""
    await put(shop, "groups/all", topic="orders", mode="broadcast", start="earliest", maxAttempts=1)
    await publish(shop, "a")
    await receive(shop, "all", clientId="ada")
    clock.advance(30)

    letters = (await shop.get("/v1/groups/all/dead-letters")).json()["items"]

    assert [letter["clientId"] for letter in letters] == ["ada"]


async def test_a_blocked_group_is_visible_in_its_lag(shop: httpx.AsyncClient) -> None:
    """With onPoison=block no dead letter is written, and lag shows the queue."""
    await shop.patch("/v1/groups/workers", json={"maxAttempts": 1, "onPoison": "block"})
    await publish(shop, "a", "b")
    await fail(shop)

    received = await receive(shop)

    assert (received["state"], received["messages"]) == ("busy", [])
    assert (await lag(shop))["queues"][0]["blocked"]
    assert (await shop.get(DEAD)).json()["items"] == []


async def test_an_invalid_dead_letter_query_is_refused(shop: httpx.AsyncClient) -> None:
    """The response is 400 with the member, or 404."""
    refused(await shop.get(f"{DEAD}?limit=0"), 400, "invalid_value", field="limit")
    refused(await shop.get(f"{DEAD}?cursor=x"), 400, "invalid_value", field="cursor")
    refused(await shop.get(f"{DEAD}?from=noon"), 400, "invalid_value", field="from")
    refused(await shop.get(f"{DEAD}?colour=x"), 400, "unknown_field", field="colour")
    refused(await shop.get(f"{DEAD}/nothing"), 404, "dead_letter_not_found")
    refused(await shop.get("/v1/groups/nobody/dead-letters"), 404, "group_not_found")
