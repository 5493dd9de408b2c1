"""Message mode over HTTP: the rules of semantics.md."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from message_calls import (
    Call,
    ack,
    bodies,
    counts,
    dead_ids,
    lag,
    operate,
    outcome,
    publish,
    put,
    receive,
    refused,
    settle,
    shop,
    take,
)

from mqgate import bootstrap
from mqgate.adapters.redis import lease_store
from mqgate.adapters.sqlite import message_leases
from mqgate.testing.clock import ManualClock

HOUR = 3600.0


async def test_message_mode_is_the_default(api: httpx.AsyncClient) -> None:
    """A group without a mode gets single messages and unlimited parallelism."""
    await shop(api)

    assert (await api.get("/v1/groups/workers")).json()["mode"] == "message"


async def test_every_grant_has_a_delivery_count_and_a_new_receipt(api: httpx.AsyncClient) -> None:
    """A client sees how often a message was delivered, and proves its own delivery."""
    await shop(api)
    await publish(api, "a")
    first = (await take(api))[0]
    await settle(api, "nack", first, delay=0)

    second = (await take(api))[0]

    assert (first["delivery"], second["delivery"]) == (1, 2)
    assert first["receipt"] != second["receipt"]
    assert first["id"] == second["id"]


async def test_one_queue_serves_many_workers(api: httpx.AsyncClient) -> None:
    """Parallelism is not limited by the number of queues."""
    await shop(api, queues=1)
    await publish(api, *map(str, range(20)))

    found = await asyncio.gather(*(take(api, max=1) for _ in range(20)))

    assert sorted(bodies([message for messages in found for message in messages]), key=int) == [
        str(number) for number in range(20)
    ]


@pytest.mark.parametrize("mode", ["message", "queue", "broadcast"])
async def test_a_repeated_attempt_is_compared_with_the_request_only(api: httpx.AsyncClient, mode: str) -> None:
    """A changed setting of the group is not an error of the client, and the lease is unchanged."""
    await shop(api, mode=mode, start="earliest")
    await publish(api, "a")
    wish = {"clientId": "ada", "attemptId": "a1"}
    first = await receive(api, **wish)
    changed = await api.patch("/v1/groups/workers", json={"visibility": "2m"})

    again = await receive(api, **wish)
    other = await api.post("/v1/groups/workers/receive", json={**wish, "visibility": "2m"})

    assert changed.status_code == 200
    assert first["messages"]
    assert (again["messages"], again.get("lease")) == (first["messages"], first.get("lease"))
    assert (other.status_code, other.json()["code"]) == (409, "attempt_mismatch")


async def test_leases_of_a_client_that_disconnected_are_released_uncounted(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """Invariant 20: no message stays leased to a client that is gone."""
    await shop(api, queues=2, maxAttempts=1)
    await publish(api, "a", "b", "c")

    for _ in range(5):
        assert await Call(gateway, is_disconnected=True).response() is None

    messages = await take(api)
    assert sorted(bodies(messages)) == ["a", "b", "c"]
    assert {message["delivery"] for message in messages} == {1}


async def test_a_repeated_attempt_returns_the_same_receipts_uncounted(
    api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """A client whose response was lost repeats the call and loses nothing."""
    await shop(api, queues=3)
    await publish(api, *"abcdef")
    first = await take(api, max=4, attemptId="a1")
    clock.advance(5)

    again = await take(api, max=4, attemptId="a1")

    assert again == first
    assert len(await take(api)) == 2


async def test_a_message_published_between_repeats_of_an_attempt_is_delivered(api: httpx.AsyncClient) -> None:
    """A repeat is served from its lease. The bounds that it reported must not be lost."""
    await shop(api)
    await publish(api, "a")
    await take(api, attemptId="a1")
    await publish(api, "b")
    await take(api, attemptId="a1")

    assert bodies(await take(api)) == ["b"]


async def test_the_release_of_a_broken_response_keeps_a_later_one(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """Responses break and are repeated a hundred times, at any moment. Leases of the repeat must stay."""
    await shop(api)
    dice = random.Random(4)
    for number in range(100):
        await publish(api, str(number))
        attempt = f"a{number}"
        broken = Call(gateway, attemptId=attempt)
        served = Call(gateway, attemptId=attempt)
        for _ in range(dice.randrange(12)):
            await asyncio.sleep(0)
        broken.disconnect()

        messages = await served.messages()
        await broken.response()

        # Broken before the repeat came: its hand-back counts, and the repeat is a receive like another.
        messages = messages or await take(api, attemptId=attempt)
        assert bodies(messages) == [str(number)]
        assert await take(api) == []
        assert await outcome(api, "ack", messages[0]) == (200, "applied")


async def test_a_repeat_after_the_filter_was_removed_returns_the_same_messages(
    api: httpx.AsyncClient,
) -> None:
    """The filtered messages in between are settled."""
    await shop(api, filter={"tags": ["x"]})
    await publish(api, "a", tag="x")
    await publish(api, "b", tag="y")
    await publish(api, "c", tag="x")
    first = await take(api, attemptId="a1")
    await api.patch("/v1/groups/workers", json={"filter": None})

    again = await take(api, attemptId="a1")

    assert bodies(first) == ["a", "c"]
    assert again == first


async def test_every_outcome_has_its_http_status(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """The table of semantics.md, row by row."""
    await shop(api, visibility=30, backoff=[0])
    await publish(api, "a", "b", "c")
    first, second, third = await take(api)
    seen = [await outcome(api, "ack", first), await outcome(api, "ack", first), await outcome(api, "nack", first)]
    clock.advance(30)

    seen.append(await outcome(api, "ack", second))
    await take(api)
    seen.append(await outcome(api, "ack", third))
    await operate(api, "seek", to="earliest")
    seen.append(await outcome(api, "extend", third))
    seen.append(await outcome(api, "ack", "forged"))

    assert seen == [
        (200, "applied"),
        (200, "duplicate"),
        (409, "lost"),
        (200, "late_applied"),
        (409, "lost"),
        (410, "gone"),
        (400, "invalid"),
    ]


async def test_every_receipt_of_a_batch_has_its_outcome(api: httpx.AsyncClient) -> None:
    """A refused receipt changes nothing, and the others apply."""
    await shop(api)
    await publish(api, "a", "b")
    first, second = await take(api)
    receipts = [first["receipt"], "forged", second["receipt"], first["receipt"]]

    answer = await api.post("/v1/groups/workers/ack", json={"receipts": receipts})

    assert answer.status_code == 207
    assert [result["outcome"] for result in answer.json()["results"]] == ["applied", "invalid", "applied", "duplicate"]
    assert await counts(api) == (0, 0, 0)


async def test_carried_acks_apply_first_and_are_reported(api: httpx.AsyncClient) -> None:
    """A worker needs one round trip per turn."""
    await shop(api, maxInFlight=1)
    await publish(api, "a", "b")
    (first,) = await take(api)

    answer = await receive(api, ack=[first["receipt"], "forged"])

    assert bodies(answer["messages"]) == ["b"]
    assert [result["outcome"] for result in answer["acked"]] == ["applied", "invalid"]


async def test_the_default_backoff_doubles_from_one_second_to_ten_minutes(
    api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """With jitter, and independent of the visibility timeout: measured by the time of redelivery."""
    await shop(api, maxAttempts=100)
    await publish(api, "a")
    waits = []
    for attempt in range(14):
        (message,) = await take(api)
        await settle(api, "nack", message)
        waited = 0.75 * min(2.0**attempt, 600)
        clock.advance(waited)
        while (await counts(api))[2]:
            step = max(waited * 0.02, 0.05)
            clock.advance(step)
            waited += step
        waits.append(waited)

    assert all(0.8 * 2**n <= wait <= 1.2 * 2**n + 0.05 + 0.03 * 2**n for n, wait in enumerate(waits[:9]))
    assert all(480 <= wait <= 613 for wait in waits[10:])


async def test_the_delay_of_a_nack_replaces_the_backoff(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """The worker may know when a retry can succeed."""
    await shop(api, backoff=["1h"])
    await publish(api, "a")
    await settle(api, "nack", (await take(api))[0], delay="3s", reason="later")
    clock.advance(3)

    assert bodies(await take(api)) == ["a"]


async def test_an_unsettled_message_limits_a_queue_by_max_span(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor stays within maxSpan of committed. When the oldest message is settled, the queue continues."""
    for store in (message_leases, lease_store):
        monkeypatch.setattr(store, "MAX_SPAN", 10)
    await shop(api)
    await publish(api, *map(str, range(15)))
    first = await take(api)
    await ack(api, *first[1:])

    stuck = await receive(api)
    await ack(api, first[0])

    assert len(first) == 10
    assert stuck["messages"] == []
    assert bodies(await take(api)) == [str(number) for number in range(10, 15)]


async def test_a_carried_ack_shortens_the_span_for_its_own_receive(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receive must not wait for what its own ack makes available."""
    for store in (message_leases, lease_store):
        monkeypatch.setattr(store, "MAX_SPAN", 2)
    await shop(api)
    await publish(api, *"abc")
    first, second = await take(api)
    await ack(api, second)

    assert bodies(await take(api, ack=[first["receipt"]])) == ["c"]


async def test_a_receive_reports_the_in_flight_cap(api: httpx.AsyncClient) -> None:
    """The cap applies to all consumers of the group. A settled message makes room for another."""
    await shop(api, maxInFlight=2)
    await publish(api, "a", "b", "c")
    first = await take(api)

    full = await receive(api)
    await ack(api, first[0])

    assert (full["state"], full["messages"]) == ("in_flight_cap", [])
    assert bodies(await take(api)) == ["c"]


async def test_the_lag_is_exact_at_rest(api: httpx.AsyncClient, clock: ManualClock, engine: str) -> None:
    """Ready, leased and waiting per queue and in total, and the age of the oldest unsettled message."""
    await shop(api, queues=1)
    await publish(api, *"abcdef")
    clock.advance(60)
    first, second, third = await take(api, max=3)
    await ack(api, first)
    await settle(api, "nack", second, delay=30)

    found = await lag(api)

    assert (found["lag"], found["ready"], found["leased"], found["waiting"]) == (5, 3, 1, 1)
    # A broker's message is stored by the broker's clock: later than the test's.
    assert found["oldestAge"] == (60 if engine == "sqlite" else 0)
    assert (found["queues"][0]["committed"], found["queues"][0]["cursor"]) == (1, 3)
    assert third["leasedUntil"] == "2026-01-01T12:01:30.000Z"


async def test_a_seek_repeats_or_skips_and_old_receipts_are_gone(
    api: httpx.AsyncClient, pass_time: Callable[[float], None]
) -> None:
    """To earliest, latest, an instant or offsets. Delivery counts start at 1 again."""
    await shop(api)
    await publish(api, "a", "b")
    pass_time(60)
    await publish(api, "c", "d")
    first = await take(api)
    await ack(api, first[0])
    found: list[list[str]] = []

    for to in ("earliest", first[2]["storedAt"], {"local:0": 3}, "latest"):
        await operate(api, "seek", to=to, reason="again")
        messages = await take(api)
        assert {message["delivery"] for message in messages} <= {1}
        found.append(bodies(messages))

    assert found == [["a", "b", "c", "d"], ["c", "d"], ["d"], []]
    assert await outcome(api, "ack", first[1]) == (410, "gone")


async def test_a_rate_limit_is_never_exceeded_and_is_reported(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """One token bucket per group, whatever is requested."""
    await shop(api, rateLimit={"rate": 2, "burst": 3})
    await publish(api, *map(str, range(20)))

    first = await take(api)
    limited = await receive(api)
    clock.advance(2)

    assert len(first) == 3
    assert (limited["state"], limited["messages"]) == ("rate_limited", [])
    assert len(await take(api)) == 3


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("receive", {"max": 0}, "invalid_value"),
        ("receive", {"max": 1001}, "invalid_value"),
        ("receive", {"wait": 61}, "invalid_value"),
        ("receive", {"wait": -1}, "invalid_value"),
        ("receive", {"visibility": 0.5}, "invalid_value"),
        ("receive", {"visibility": "13h"}, "invalid_value"),
        ("receive", {"attemptId": ""}, "invalid_value"),
        ("receive", {"attemptId": "x" * 129}, "invalid_value"),
        ("receive", {"ack": ["r"] * 1001}, "invalid_value"),
        ("receive", {"limit": 3}, "unknown_field"),
        ("ack", {"receipts": ["r"] * 1001}, "invalid_value"),
        ("ack", {"receipts": []}, "invalid_value"),
        ("ack", {}, "invalid_value"),
        ("ack", {"receipt": "r", "receipts": ["r"]}, "invalid_value"),
        ("ack", {"receipt": "r", "through": 3}, "unsupported_by_mode"),
        ("ack", {"receipt": "r"}, "invalid_receipt"),
        ("nack", {"receipt": "r"}, "invalid_receipt"),
        ("nack", {"receipt": "r", "delay": -1}, "invalid_value"),
        ("nack", {"receipt": "r", "delay": "13h"}, "invalid_value"),
        ("nack", {"receipt": "r", "reason": "x" * 1001}, "invalid_value"),
        ("nack", {"receipts": ["r"] * 1001}, "invalid_value"),
        ("extend", {"receipts": ["r"] * 1001}, "invalid_value"),
        ("extend", {"receipt": "r", "visibility": "13h"}, "invalid_value"),
        ("extend", {"receipt": "r", "visibility": 0}, "invalid_value"),
    ],
)
async def test_invalid_input_is_refused_and_changes_nothing(
    api: httpx.AsyncClient, path: str, body: dict[str, Any], code: str
) -> None:
    """The code is stable, the response is never a 500, and nothing is half done."""
    await shop(api)
    await publish(api, "a", "b")
    await take(api, max=1)
    before = await lag(api)

    answer = await api.post(f"/v1/groups/workers/{path}", json=body)

    refused(answer, 400, code)
    assert await lag(api) == before


async def test_a_receipt_of_another_group_is_refused(api: httpx.AsyncClient) -> None:
    """It is invalid for every verb, and neither group changes."""
    await shop(api)
    await put(api, "groups/others", topic="orders")
    await publish(api, "a")
    (message,) = await take(api)
    (theirs,) = await take(api, "others")

    for verb in ("ack", "nack", "extend"):
        refused(await settle(api, verb, theirs), 400, "invalid_receipt")

    assert await counts(api) == await counts(api, "others") == (0, 1, 0)
    assert await outcome(api, "ack", message) == (200, "applied")


@pytest.mark.parametrize("change", [{"max": 3}, {"visibility": 60}])
async def test_an_attempt_id_with_other_parameters_is_refused(api: httpx.AsyncClient, change: dict[str, Any]) -> None:
    """This is a bug in the client. Not even its carried acks apply."""
    await shop(api)
    await publish(api, "a", "b")
    (carried,) = await take(api, max=1)
    await take(api, max=1, attemptId="a1")

    answer = await api.post(
        "/v1/groups/workers/receive",
        json={"max": 1, "attemptId": "a1", "ack": [carried["receipt"]], **change},
    )

    refused(answer, 409, "attempt_mismatch")
    assert await counts(api) == (0, 2, 0)


@pytest.mark.parametrize(
    "settings_",
    [
        {"backoff": []},
        {"backoff": [-1]},
        {"backoff": ["1x"]},
        {"backoff": {"factor": 0.5}},
        {"backoff": {"jitter": 2}},
        {"backoff": {"initial": -1}},
        {"backoff": {"first": 1}},
        {"filter": {"tags": []}},
        {"filter": {"tags": [""]}},
        {"filter": {"tags": ["\u0001"]}},
        {"filter": {"keys": ["a"]}},
        {"filter": "a"},
        {"ordered": "yes"},
        {"maxInFlight": 0},
        {"maxAttempts": 0},
        {"visibility": 0.5},
        {"visibility": "13h"},
        {"onPoison": "block"},
        {"clientTtl": 60},
    ],
    ids=str,
)
async def test_an_invalid_setting_is_refused_and_creates_no_group(
    api: httpx.AsyncClient, settings_: dict[str, Any]
) -> None:
    """A setting that has no effect is never accepted."""
    await put(api, "topics/orders", queues=1)

    answer = await api.put("/v1/groups/workers", json={"topic": "orders", **settings_})

    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] in {"invalid_value", "unknown_field", "unsupported_by_mode"}
    assert (await api.get("/v1/groups/workers")).status_code == 404


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
@pytest.mark.parametrize("setting", [{"filter": {"tags": ["a"]}}, {"ordered": True}, {"maxInFlight": 5}])
async def test_filter_order_and_cap_require_message_mode(
    api: httpx.AsyncClient, mode: str, setting: dict[str, Any]
) -> None:
    """Other modes refuse them with 400."""
    await put(api, "topics/orders", queues=1)

    answer = await api.put("/v1/groups/workers", json={"topic": "orders", "mode": mode, **setting})

    refused(answer, 400, "unsupported_by_mode")


async def test_message_mode_survives_a_restart_between_any_two_requests(settings: Any, clock: ManualClock) -> None:
    """Leases, failures, order, attempts and exhausted messages are in the store, not in memory."""

    async def restarted(step: Any) -> Any:
        async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
            transport = httpx.ASGITransport(app=gateway.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
                return await step(api)

    await restarted(lambda api: shop(api, ordered=True, maxAttempts=2, backoff=["10s"], visibility=30))
    await restarted(lambda api: publish(api, "k1", "k2", key="k"))
    (first,) = await restarted(lambda api: take(api, attemptId="a1"))
    (again,) = await restarted(lambda api: take(api, attemptId="a1"))
    nacked = await restarted(lambda api: outcome(api, "nack", first))
    clock.advance(timedelta(seconds=10))
    (second,) = await restarted(take)
    clock.advance(timedelta(seconds=30))
    letters = await restarted(dead_ids)
    (third,) = await restarted(take)

    assert again == first
    assert nacked == (200, "applied")
    assert (second["body"], second["delivery"]) == ("k1", 2)
    assert letters == [first["id"]]
    assert (third["body"], third["delivery"]) == ("k2", 1)
    assert await restarted(lambda api: outcome(api, "ack", third)) == (200, "applied")
    assert await restarted(counts) == (0, 0, 0)
