"""Dead letters in message and queue mode, and their redrive and purge: the rules of semantics.md."""

import asyncio
import time
from typing import Any

import httpx
import pytest
from message_calls import (
    ack,
    bodies,
    counts,
    dead,
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
from mqgate.testing.clock import ManualClock


async def die(api: httpx.AsyncClient, *texts: str, reason: str = "broken", **envelope: Any) -> list[str]:
    """Publish messages that are exhausted in a group with one attempt. Return their ids."""
    await publish(api, *texts, **envelope)
    ids = []
    for message in await take(api, max=1000):
        assert await outcome(api, "nack", message, reason=reason) == (200, "applied")
        ids.append(message["id"])
    return ids


async def redrive(api: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    return await operate(api, "dead-letters/redrive", **body)


async def test_the_last_nack_writes_a_dead_letter_at_once(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """It has the body, origin, deliveries, first and last time and last reason. The message leaves the lag."""
    await shop(api, maxAttempts=2, backoff=[0])
    await publish(api, "a", key="k", tag="t", properties={"p": "q"})
    clock.advance(1)
    (first,) = await take(api)
    await settle(api, "nack", first, reason="bad")
    clock.advance(2)
    (second,) = await take(api)

    seen = await outcome(api, "nack", second, reason="worse")

    (letter,) = await dead(api)
    whole = (await api.get(f"/v1/groups/workers/dead-letters/{first['id']}")).json()
    assert seen == (200, "applied")
    assert letter["id"] == first["id"]
    assert letter["origin"] == {"topic": "orders", "queue": "local:0", "offset": 0}
    assert (letter["deliveries"], letter["reason"], letter["key"]) == (2, "worse", "k")
    assert (letter["firstAt"], letter["lastAt"]) == ("2026-01-01T12:00:01.000Z", "2026-01-01T12:00:03.000Z")
    assert (whole["body"], whole["tag"], whole["properties"]) == ("a", "t", {"p": "q"})
    assert whole["storedAt"] == first["storedAt"]
    assert await counts(api) == (0, 0, 0)


@pytest.mark.parametrize("look", ["receive", "lag", "dead-letters", "paused receive"])
async def test_an_expired_last_lease_becomes_a_dead_letter_at_the_next_call(
    api: httpx.AsyncClient, clock: ManualClock, look: str
) -> None:
    """The next receive, lag call or dead-letter call writes it at the latest."""
    await shop(api, maxAttempts=1, visibility=30)
    await publish(api, "a")
    (message,) = await take(api)
    if "paused" in look:
        await operate(api, "pause")
    clock.advance(30)
    ended_at = "2026-01-01T12:00:30.000Z"
    clock.advance(60)

    if "receive" in look:
        assert (await receive(api))["messages"] == []
    elif look == "lag":
        assert await counts(api) == (0, 0, 0)
    (letter,) = await dead(api)

    assert (letter["id"], letter["deliveries"], letter["lastAt"]) == (message["id"], 1, ended_at)
    assert letter["reason"]
    assert await outcome(api, "ack", message) == (409, "lost")
    assert await counts(api) == (0, 0, 0)


async def test_a_message_has_at_most_max_attempts_and_then_one_dead_letter(
    api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """Invariant 17, with many concurrent calls that find the exhausted message."""
    await shop(api, maxAttempts=3, backoff=[0], visibility=30)
    await publish(api, "a")
    seen = []
    for _ in range(3):
        (message,) = await take(api)
        seen.append(message["delivery"])
        clock.advance(30)

    await asyncio.gather(
        *(take(api) for _ in range(10)), *(lag(api) for _ in range(10)), *(dead(api) for _ in range(10))
    )

    assert seen == [1, 2, 3]
    assert len(await dead(api)) == 1
    assert await take(api) == []


async def test_a_dead_letter_of_one_group_does_not_affect_another(api: httpx.AsyncClient) -> None:
    """Each group has its own dead letters."""
    await shop(api, maxAttempts=1)
    await put(api, "groups/others", topic="orders")
    await die(api, "a")

    assert await dead(api, "others") == []
    assert bodies(await take(api, "others")) == ["a"]


async def test_dead_letters_are_listed_by_key_and_time_page_by_page(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """The pages must contain every dead letter once."""
    await shop(api, maxAttempts=1)
    ids = []
    for number in range(5):
        ids += await die(api, str(number), key="odd" if number % 2 else "even")
        clock.advance(60)
    first = (await api.get("/v1/groups/workers/dead-letters", params={"limit": 2})).json()
    second = (await api.get("/v1/groups/workers/dead-letters", params={"limit": 3, "cursor": first["next"]})).json()

    assert [letter["id"] for letter in first["items"] + second["items"]] == ids
    assert second["next"] is None
    assert [message["id"] for message in await dead(api, key="odd")] == [ids[1], ids[3]]
    some = await dead(api, **{"from": "2026-01-01T12:01:00Z", "to": "2026-01-01T12:03:00Z"})
    assert [message["id"] for message in some] == ids[1:3]


async def test_a_redriven_message_reaches_its_group_only_as_a_first_delivery(api: httpx.AsyncClient) -> None:
    """Its id and content are unchanged, other groups do not receive it again, and the dead letter is deleted."""
    await shop(api, maxAttempts=1)
    await put(api, "groups/others", topic="orders")
    (dead_id,) = await die(api, "a", key="k", tag="t", properties={"p": "q"})
    await ack(api, *await take(api, "others"), group="others")

    response = await redrive(api, ids=[dead_id])
    (message,) = await take(api)

    assert response["results"] == [{"id": dead_id, "outcome": "redriven"}]
    assert (message["id"], message["delivery"]) == (dead_id, 1)
    assert {name: message[name] for name in ("body", "topic", "key", "tag", "properties")} == {
        "body": "a",
        "topic": "orders",
        "key": "k",
        "tag": "t",
        "properties": {"p": "q"},
    }
    assert await take(api, "others") == []
    assert await dead(api) == []
    assert await outcome(api, "ack", message) == (200, "applied")
    assert await counts(api) == (0, 0, 0)


async def test_a_redriven_message_can_be_exhausted_and_redriven_again(api: httpx.AsyncClient) -> None:
    """It keeps its id, and has one dead letter at a time."""
    await shop(api, maxAttempts=1)
    (dead_id,) = await die(api, "a")

    for _ in range(3):
        await redrive(api, ids=[dead_id])
        (message,) = await take(api)
        assert (message["id"], message["delivery"]) == (dead_id, 1)
        await settle(api, "nack", message, reason="again")
        assert await dead_ids(api) == [dead_id]


async def test_redrive_has_an_outcome_per_message(api: httpx.AsyncClient) -> None:
    """Results are in the order of the ids. Unknown ids are reported, and repeated ids once."""
    await shop(api, maxAttempts=1)
    first, second, third = await die(api, "a", "b", "c")

    response = await redrive(api, ids=[third, "nobody", first, third])

    assert response["results"] == [
        {"id": third, "outcome": "redriven"},
        {"id": "nobody", "outcome": "not_found"},
        {"id": first, "outcome": "redriven"},
    ]
    assert await dead_ids(api) == [second]
    assert sorted(bodies(await take(api))) == ["a", "c"]


@pytest.mark.parametrize("verb", ["redrive", "purge"])
async def test_a_dry_run_changes_nothing_and_returns_the_outcomes(api: httpx.AsyncClient, verb: str) -> None:
    """An operator can check a redrive before running it."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a", "b")
    before = await dead(api), await lag(api)

    response = await operate(api, f"dead-letters/{verb}", all=True, dryRun=True)

    assert response["dryRun"] is True
    assert [result["id"] for result in response["results"]] == ids
    assert (await dead(api), await lag(api)) == before
    assert await take(api) == []


async def test_all_dead_letters_are_redriven_a_thousand_at_a_time(api: httpx.AsyncClient) -> None:
    """The response reports whether there are more."""
    await shop(api, maxAttempts=1, maxInFlight=5000)
    await die(api, *map(str, range(1000)))
    await die(api, *map(str, range(1000, 1100)))

    first = await redrive(api, all=True)
    second = await redrive(api, all=True)

    assert (len(first["results"]), first["more"]) == (1000, True)
    assert (len(second["results"]), second["more"]) == (100, False)
    assert await dead(api) == []
    assert await counts(api) == (1100, 0, 0)


async def test_a_redrive_keeps_its_rate(live_api: httpx.AsyncClient) -> None:
    """The group must keep capacity for its other messages."""
    await shop(live_api, maxAttempts=1)
    await die(live_api, *map(str, range(6)))
    began = time.monotonic()

    await redrive(live_api, all=True, rate=10)

    assert time.monotonic() - began > 0.45
    assert len(await take(live_api)) == 6


async def test_a_purge_keeps_its_rate(live_api: httpx.AsyncClient) -> None:
    """The store must keep capacity for its other work."""
    await shop(live_api, maxAttempts=1)
    await die(live_api, *map(str, range(6)))
    began = time.monotonic()

    await operate(live_api, "dead-letters/purge", all=True, rate=10)

    assert time.monotonic() - began > 0.45
    assert await dead(live_api) == []


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize("rate", [0, -1, 1e9, 0.01])
async def test_a_rate_of_zero_or_beyond_a_minute_is_refused(api: httpx.AsyncClient, verb: str, rate: float) -> None:
    """The request would never end, or take longer than clients wait for a response."""
    await shop(api, maxAttempts=1)
    await die(api, "a")

    response = await api.post(f"/v1/groups/workers/dead-letters/{verb}", json={"all": True, "rate": rate})

    assert refused(response, 400, "invalid_value")["field"] == "rate"
    assert len(await dead(api)) == 1


async def test_concurrent_redrives_deliver_each_message_once(api: httpx.AsyncClient) -> None:
    """Two operators may redrive at the same time. A concurrent purge must report what it deleted."""
    await shop(api, maxAttempts=1)
    ids = await die(api, *map(str, range(10)))

    responses = await asyncio.gather(
        *(redrive(api, all=True) for _ in range(3)),
        redrive(api, ids=ids),
        operate(api, "dead-letters/purge", ids=ids),
    )

    redriven = [
        result["id"] for response in responses for result in response["results"] if result["outcome"] != "not_found"
    ]
    assert sorted(redriven) == sorted(ids)
    redriven = [
        result["id"] for response in responses for result in response["results"] if result["outcome"] == "redriven"
    ]
    assert sorted(message["id"] for message in await take(api)) == sorted(redriven)
    assert await dead(api) == []


async def test_a_purge_deletes_selected_or_all_dead_letters(api: httpx.AsyncClient) -> None:
    """The result names each deleted dead letter."""
    await shop(api, maxAttempts=1)
    first, second, third = await die(api, "a", "b", "c")

    some = await operate(api, "dead-letters/purge", ids=[second, "nobody"])
    rest = await operate(api, "dead-letters/purge", all=True)

    assert [result["outcome"] for result in some["results"]] == ["purged", "not_found"]
    assert [result["id"] for result in rest["results"]] == [first, third]
    assert await dead(api) == []
    assert await take(api) == []
    assert (await api.get(f"/v1/groups/workers/dead-letters/{second}")).status_code == 404


async def test_redrive_and_purge_have_audit_entries(api: httpx.AsyncClient) -> None:
    """An audit entry names the operator and the messages."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a", "b")
    await redrive(api, ids=ids[:1])
    await operate(api, "dead-letters/purge", ids=ids[1:])

    acts = (await api.get("/v1/audit")).json()["items"]

    assert [(act["action"], act["details"]["ids"]) for act in acts[:2]] == [
        ("purge", ids[1:]),
        ("redrive", ids[:1]),
    ]


async def test_a_queue_mode_group_can_redrive(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """The messages arrive through its private log, in order, as first deliveries."""
    await shop(api, mode="queue", maxAttempts=2)
    await publish(api, "a", "b")
    for _ in range(4):
        held = await receive(api, max=1)
        await settle(api, "nack", held["lease"]["receipt"], reason="bad")
    ids = await dead_ids(api)

    await redrive(api, all=True)
    again = await receive(api)

    assert len(ids) == 2
    assert [message["id"] for message in again["messages"]] == ids
    assert again["lease"]["delivery"] == 1
    assert await outcome(api, "ack", again["lease"]["receipt"]) == (200, "applied")
    assert (await lag(api))["lag"] == 0


async def test_redriven_messages_of_one_key_keep_their_order(api: httpx.AsyncClient) -> None:
    """Two messages of a key that are redriven together are delivered one after the other."""
    await shop(api, ordered=True, maxAttempts=1)
    await publish(api, "k1", "k2", key="k")
    for _ in range(2):
        (message,) = await take(api)
        await settle(api, "nack", message)

    await redrive(api, all=True)
    (first,) = await take(api)
    await ack(api, first)

    assert first["body"] == "k1"
    assert bodies(await take(api)) == ["k2"]


async def test_redriven_messages_survive_a_restart(settings: Any, clock: ManualClock) -> None:
    """The private log of the group is as durable as its topic."""
    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        api = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app), base_url="http://localhost")
        await shop(api, maxAttempts=1, start="latest")
        (dead_id,) = await die(api, "a")
        await redrive(api, all=True)

    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        api = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app), base_url="http://localhost")

        assert [message["id"] for message in await take(api)] == [dead_id]


async def test_deleting_a_group_deletes_its_dead_and_redriven_messages(api: httpx.AsyncClient) -> None:
    """A group that is registered again under the same name starts without them."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a", "b")
    await redrive(api, ids=ids[:1])
    await api.delete("/v1/groups/workers")

    await put(api, "groups/workers", topic="orders", start="latest", maxAttempts=1)

    assert await dead(api) == []
    assert await take(api) == []
    await die(api, "c")
    await redrive(api, all=True)
    assert bodies(await take(api)) == ["c"]


async def test_a_message_exhausted_again_after_a_seek_has_one_dead_letter(
    api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """The dead letter has the reason of the last failure."""
    await shop(api, maxAttempts=1)
    await publish(api, "a")
    letters = []
    for reason in ("first", "second"):
        await settle(api, "nack", (await take(api))[0], reason=reason)
        letters += await dead(api)
        clock.advance(60)
        await operate(api, "seek", to="earliest")

    assert [letter["reason"] for letter in letters] == ["first", "second"]
    assert letters[0]["id"] == letters[1]["id"]
    assert letters[0]["lastAt"] < letters[1]["lastAt"]


async def test_a_seek_to_latest_skips_redriven_messages_too(api: httpx.AsyncClient) -> None:
    """It applies to the private log of the group even before the first receive."""
    await shop(api, maxAttempts=1)
    await die(api, "a")
    await redrive(api, all=True)

    response = await operate(api, "seek", to="latest")

    assert await take(api) == []
    assert {queue["queue"] for queue in response["queues"]} == {"local:0", "retry-local:0"}


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize(
    "body",
    [{}, {"ids": []}, {"ids": ["x"] * 1001}, {"ids": ["x"], "all": True}, {"all": False}, {"ids": "x"}, {"which": 1}],
    ids=lambda body: str(body)[:30],
)
async def test_an_invalid_selection_is_refused(api: httpx.AsyncClient, verb: str, body: dict[str, Any]) -> None:
    """The response is 400, and nothing is changed."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a")

    response = await api.post(f"/v1/groups/workers/dead-letters/{verb}", json=body)

    assert response.status_code == 400
    assert response.json()["code"] in {"invalid_value", "unknown_field"}
    assert await dead_ids(api) == ids


@pytest.mark.parametrize("rate", [0, -1, 1e9, 0.001])
async def test_an_invalid_rate_is_refused(api: httpx.AsyncClient, rate: float) -> None:
    """Zero, negative, excessive, or so slow that the request would take too long."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a")

    response = await api.post("/v1/groups/workers/dead-letters/redrive", json={"all": True, "rate": rate})

    refused(response, 400, "invalid_value")
    assert await dead_ids(api) == ids


async def test_an_unknown_dead_letter_and_an_unknown_group_are_not_found(api: httpx.AsyncClient) -> None:
    """The response is 404 with a stable code."""
    await shop(api)

    refused(await api.get("/v1/groups/workers/dead-letters/nobody"), 404, "dead_letter_not_found")
    refused(await api.get("/v1/groups/nobody/dead-letters"), 404, "group_not_found")
    refused(await api.post("/v1/groups/nobody/dead-letters/redrive", json={"all": True}), 404, "group_not_found")


async def test_a_redriven_message_exhausted_again_keeps_its_origin(api: httpx.AsyncClient) -> None:
    """The dead letter names the original topic and queue, and consumers see no internal properties."""
    await shop(api, maxAttempts=1)
    (message_id,) = await die(api, "a", properties={"colour": "blue"})
    (first,) = await dead(api)
    await redrive(api, ids=[message_id])

    (again,) = await take(api)
    await outcome(api, "nack", again)

    (second,) = await dead(api)
    assert again["properties"] == {"colour": "blue"}
    assert again["queue"].startswith("retry-")
    assert second["origin"] == first["origin"]
