"""Dead letters of message and queue mode, and what becomes of them: line by line of semantics.md."""

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
    """Messages that died in a group of one attempt; their ids."""
    await publish(api, *texts, **envelope)
    ids = []
    for message in await take(api, max=1000):
        assert await outcome(api, "nack", message, reason=reason) == (200, "applied")
        ids.append(message["id"])
    return ids


async def redrive(api: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    return await operate(api, "dead-letters/redrive", **body)


async def test_the_last_nack_makes_a_dead_letter_at_once(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """With body, origin, deliveries, first and last time, last reason; and its lag is gone."""
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
async def test_the_last_lease_that_ended_makes_a_dead_letter_when_somebody_looks(
    api: httpx.AsyncClient, clock: ManualClock, look: str
) -> None:
    """At the latest at the next receive, lag or dead-letter call."""
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


async def test_deliveries_never_exceed_max_attempts_then_exactly_one_dead_letter(
    api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """Invariant 17, with many who look at the moment of death."""
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


async def test_a_death_in_one_group_says_nothing_about_another(api: httpx.AsyncClient) -> None:
    """Each group has its own dead."""
    await shop(api, maxAttempts=1)
    await put(api, "groups/others", topic="orders")
    await die(api, "a")

    assert await dead(api, "others") == []
    assert bodies(await take(api, "others")) == ["a"]


async def test_dead_letters_are_listed_by_key_and_time_page_by_page(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """Nothing twice, nothing missed."""
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


async def test_redrive_reaches_that_group_only_with_the_same_id_and_deliveries_reset(api: httpx.AsyncClient) -> None:
    """The message as it was; nobody else sees it again; the dead letter is gone."""
    await shop(api, maxAttempts=1)
    await put(api, "groups/others", topic="orders")
    (dead_id,) = await die(api, "a", key="k", tag="t", properties={"p": "q"})
    await ack(api, *await take(api, "others"), group="others")

    answer = await redrive(api, ids=[dead_id])
    (message,) = await take(api)

    assert answer["results"] == [{"id": dead_id, "outcome": "redriven"}]
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


async def test_a_redriven_message_may_die_again_and_be_redriven_again(api: httpx.AsyncClient) -> None:
    """The same id, one dead letter at a time."""
    await shop(api, maxAttempts=1)
    (dead_id,) = await die(api, "a")

    for _ in range(3):
        await redrive(api, ids=[dead_id])
        (message,) = await take(api)
        assert (message["id"], message["delivery"]) == (dead_id, 1)
        await settle(api, "nack", message, reason="again")
        assert await dead_ids(api) == [dead_id]


async def test_redrive_has_an_outcome_per_message(api: httpx.AsyncClient) -> None:
    """Selected by id, in the order asked; unknown ids are told, repeated ones once."""
    await shop(api, maxAttempts=1)
    first, second, third = await die(api, "a", "b", "c")

    answer = await redrive(api, ids=[third, "nobody", first, third])

    assert answer["results"] == [
        {"id": third, "outcome": "redriven"},
        {"id": "nobody", "outcome": "not_found"},
        {"id": first, "outcome": "redriven"},
    ]
    assert await dead_ids(api) == [second]
    assert sorted(bodies(await take(api))) == ["a", "c"]


@pytest.mark.parametrize("verb", ["redrive", "purge"])
async def test_a_dry_run_changes_nothing_and_says_what_it_would_do(api: httpx.AsyncClient, verb: str) -> None:
    """Look before you leap."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a", "b")
    before = await dead(api), await lag(api)

    answer = await operate(api, f"dead-letters/{verb}", all=True, dryRun=True)

    assert answer["dryRun"] is True
    assert [result["id"] for result in answer["results"]] == ids
    assert (await dead(api), await lag(api)) == before
    assert await take(api) == []


async def test_all_are_redriven_a_thousand_at_a_time(api: httpx.AsyncClient) -> None:
    """And whether there are more is told."""
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
    """So many a second, not more: the group has other work."""
    await shop(live_api, maxAttempts=1)
    await die(live_api, *map(str, range(6)))
    began = time.monotonic()

    await redrive(live_api, all=True, rate=10)

    assert time.monotonic() - began > 0.45
    assert len(await take(live_api)) == 6


async def test_a_purge_keeps_its_rate(live_api: httpx.AsyncClient) -> None:
    """As a redrive does: a store has other work too."""
    await shop(live_api, maxAttempts=1)
    await die(live_api, *map(str, range(6)))
    began = time.monotonic()

    await operate(live_api, "dead-letters/purge", all=True, rate=10)

    assert time.monotonic() - began > 0.45
    assert await dead(live_api) == []


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize("rate", [0, -1, 1e9, 0.01])
async def test_a_rate_that_makes_no_sense_is_refused(api: httpx.AsyncClient, verb: str, rate: float) -> None:
    """None at all, or more than a minute of waiting for the answer."""
    await shop(api, maxAttempts=1)
    await die(api, "a")

    answer = await api.post(f"/v1/groups/workers/dead-letters/{verb}", json={"all": True, "rate": rate})

    assert refused(answer, 400, "invalid_value")["field"] == "rate"
    assert len(await dead(api)) == 1


async def test_two_redrives_at_once_deliver_each_message_once(api: httpx.AsyncClient) -> None:
    """An operator who clicks twice, or two operators: conservation holds, and a purge does not lie."""
    await shop(api, maxAttempts=1)
    ids = await die(api, *map(str, range(10)))

    answers = await asyncio.gather(
        *(redrive(api, all=True) for _ in range(3)),
        redrive(api, ids=ids),
        operate(api, "dead-letters/purge", ids=ids),
    )

    told = [result["id"] for answer in answers for result in answer["results"] if result["outcome"] != "not_found"]
    assert sorted(told) == sorted(ids)
    redriven = [result["id"] for answer in answers for result in answer["results"] if result["outcome"] == "redriven"]
    assert sorted(message["id"] for message in await take(api)) == sorted(redriven)
    assert await dead(api) == []


async def test_purge_throws_away(api: httpx.AsyncClient) -> None:
    """Selected or all; gone for good, and said per message."""
    await shop(api, maxAttempts=1)
    first, second, third = await die(api, "a", "b", "c")

    some = await operate(api, "dead-letters/purge", ids=[second, "nobody"])
    rest = await operate(api, "dead-letters/purge", all=True)

    assert [result["outcome"] for result in some["results"]] == ["purged", "not_found"]
    assert [result["id"] for result in rest["results"]] == [first, third]
    assert await dead(api) == []
    assert await take(api) == []
    assert (await api.get(f"/v1/groups/workers/dead-letters/{second}")).status_code == 404


async def test_redrive_and_purge_are_on_record(api: httpx.AsyncClient) -> None:
    """Who did it, to which messages."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a", "b")
    await redrive(api, ids=ids[:1])
    await operate(api, "dead-letters/purge", ids=ids[1:])

    acts = (await api.get("/v1/audit")).json()["items"]

    assert [(act["action"], act["details"]["ids"]) for act in acts[:2]] == [
        ("purge", ids[1:]),
        ("redrive", ids[:1]),
    ]


async def test_a_queue_mode_group_redrives_as_well(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """Through its own log, in order, deliveries from one."""
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


async def test_a_redriven_message_of_an_ordered_group_keeps_its_keys_order(api: httpx.AsyncClient) -> None:
    """Two of a key, redriven together: one after the other."""
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
    """The group's own log is as durable as its topic."""
    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        api = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app), base_url="http://localhost")
        await shop(api, maxAttempts=1, start="latest")
        (dead_id,) = await die(api, "a")
        await redrive(api, all=True)

    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        api = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app), base_url="http://localhost")

        assert [message["id"] for message in await take(api)] == [dead_id]


async def test_a_deleted_groups_dead_and_redriven_messages_go_with_it(api: httpx.AsyncClient) -> None:
    """A group made anew under its name begins with nothing of them."""
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


async def test_a_message_that_dies_again_after_a_seek_is_one_letter_with_its_last_reason(
    api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """An operator reads why it died, not why it once did."""
    await shop(api, maxAttempts=1)
    await publish(api, "a")
    told = []
    for reason in ("first", "second"):
        await settle(api, "nack", (await take(api))[0], reason=reason)
        told += await dead(api)
        clock.advance(60)
        await operate(api, "seek", to="earliest")

    assert [letter["reason"] for letter in told] == ["first", "second"]
    assert told[0]["id"] == told[1]["id"]
    assert told[0]["lastAt"] < told[1]["lastAt"]


async def test_a_seek_to_latest_skips_redriven_messages_too(api: httpx.AsyncClient) -> None:
    """Latest is latest everywhere, also where nobody has looked yet."""
    await shop(api, maxAttempts=1)
    await die(api, "a")
    await redrive(api, all=True)

    answer = await operate(api, "seek", to="latest")

    assert await take(api) == []
    assert {queue["queue"] for queue in answer["queues"]} == {"local:0", "retry-local:0"}


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize(
    "body",
    [{}, {"ids": []}, {"ids": ["x"] * 1001}, {"ids": ["x"], "all": True}, {"all": False}, {"ids": "x"}, {"which": 1}],
    ids=lambda body: str(body)[:30],
)
async def test_a_bad_selection_is_refused(api: httpx.AsyncClient, verb: str, body: dict[str, Any]) -> None:
    """400, and nothing is touched."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a")

    answer = await api.post(f"/v1/groups/workers/dead-letters/{verb}", json=body)

    assert answer.status_code == 400
    assert answer.json()["code"] in {"invalid_value", "unknown_field"}
    assert await dead_ids(api) == ids


@pytest.mark.parametrize("rate", [0, -1, 1e9, 0.001])
async def test_a_bad_rate_is_refused(api: httpx.AsyncClient, rate: float) -> None:
    """None, negative, absurd, or slower than a request may take."""
    await shop(api, maxAttempts=1)
    ids = await die(api, "a")

    answer = await api.post("/v1/groups/workers/dead-letters/redrive", json={"all": True, "rate": rate})

    refused(answer, 400, "invalid_value")
    assert await dead_ids(api) == ids


async def test_an_unknown_dead_letter_and_an_unknown_group_are_not_found(api: httpx.AsyncClient) -> None:
    """404 with a stable code."""
    await shop(api)

    refused(await api.get("/v1/groups/workers/dead-letters/nobody"), 404, "dead_letter_not_found")
    refused(await api.get("/v1/groups/nobody/dead-letters"), 404, "group_not_found")
    refused(await api.post("/v1/groups/nobody/dead-letters/redrive", json={"all": True}), 404, "group_not_found")


async def test_a_message_that_dies_again_still_tells_where_it_came_from(api: httpx.AsyncClient) -> None:
    """An origin in the group's private log would lead nowhere; and consumers see none of our bookkeeping."""
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
