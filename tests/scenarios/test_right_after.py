"""What one gateway has answered counts at the other with the very next request, whatever the other believed before."""

import asyncio
import time

import httpx
import pytest
from message_calls import Json, bodies, counts, dead, operate, outcome, parked, publish, put, receive, shop, take
from sides import Side, on_rocketmq

pytestmark = on_rocketmq
LONG = 20
# A broker tells of a message a moment after it has confirmed it: once alone may be luck.
OFTEN = 10


async def first_redrive(here: Side, there: Side, **group: object) -> None:
    """A message died and was redriven here, as the group's first; there it was just seen that the group had none."""
    await shop(here.api, maxAttempts=1, **group)
    await publish(here.api, "second chance")
    received = await receive(here.api, wait=LONG)
    await outcome(here.api, "nack", receipt_of(received))
    assert len(await dead(here.api)) == 1
    assert await take(there.api) == []

    await operate(here.api, "dead-letters/redrive", all=True)


def receipt_of(received: Json) -> str:
    lease = received.get("lease") or received["messages"][0]
    return str(lease["receipt"])


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_redriven_message_is_received_elsewhere_at_once(both: tuple[Side, Side], mode: str) -> None:
    """Though the log that it goes through was made by the redrive, and the other gateway has never met it."""
    here, there = both
    await first_redrive(here, there, mode=mode)

    messages = await take(there.api)

    assert bodies(messages) == ["second chance"]


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_redriven_message_that_fails_elsewhere_is_dead_there(both: tuple[Side, Side], mode: str) -> None:
    """Any gateway takes the nack, shows the dead letter and counts what is left."""
    here, there = both
    await first_redrive(here, there, mode=mode)
    received = await receive(here.api)

    nacked = await outcome(there.api, "nack", receipt_of(received), reason="again")

    assert nacked == (200, "applied")
    assert [(letter["reason"], letter["deliveries"]) for letter in await dead(there.api)] == [("again", 1)]
    assert await counts(there.api) == (0, 0, 0)


async def test_who_looks_elsewhere_at_what_was_redriven_sees_it(both: tuple[Side, Side]) -> None:
    """Lag there counts it, and says how old it is."""
    here, there = both
    await first_redrive(here, there)

    assert await counts(there.api) == (1, 0, 0)


@pytest.mark.parametrize("is_first", [True, False])
async def test_who_begins_to_wait_elsewhere_right_after_a_redrive_has_it_at_once(
    both: tuple[Side, Side], is_first: bool
) -> None:
    """The wake-up came before anybody waited, so the look before the park must not miss it."""
    here, there = both
    await first_redrive(here, there)
    if not is_first:
        await outcome(here.api, "nack", receipt_of(await receive(here.api)))
        assert await take(there.api) == []
        await operate(here.api, "dead-letters/redrive", all=True)

    began = time.monotonic()
    messages = await take(there.api, wait=LONG)

    assert bodies(messages) == ["second chance"]
    assert time.monotonic() - began < LONG / 4


async def pass_by(there: httpx.AsyncClient) -> None:
    """Look there, so that it knows the queues' ends as they are now."""
    await there.get("/v1/topics/orders/queues")


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_seek_to_latest_skips_what_was_published_elsewhere_before(both: tuple[Side, Side], mode: str) -> None:
    """Seek is exact: what was stored before it is behind the group, what comes after is before it."""
    here, there = both
    await shop(here.api, queues=2, mode=mode)

    for turn in range(OFTEN):
        await pass_by(there.api)
        await publish(here.api, "before")
        await operate(there.api, "seek", to="latest")
        await publish(here.api, f"after {turn}")

        received = await receive(there.api, wait=LONG, max=10)
        assert bodies(received["messages"]) == [f"after {turn}"]
        assert await outcome(there.api, "ack", receipt_of(received)) == (200, "applied")


async def test_a_message_that_is_redriven_at_both_at_once_comes_once(both: tuple[Side, Side]) -> None:
    """One of them did it, the other hears that there was nothing left; and so it is with a purge."""
    here, there = both
    await shop(here.api, maxAttempts=1)
    (stored,) = await publish(here.api, "second chance")
    await outcome(here.api, "nack", receipt_of(await receive(here.api, wait=LONG)))

    answers = await asyncio.gather(
        operate(here.api, "dead-letters/redrive", ids=[stored["id"]]),
        operate(there.api, "dead-letters/redrive", ids=[stored["id"]]),
        operate(there.api, "dead-letters/purge", ids=[stored["id"]]),
    )

    outcomes = sorted(answer["results"][0]["outcome"] for answer in answers)
    assert outcomes in (["not_found", "not_found", "redriven"], ["not_found", "not_found", "purged"])
    assert await counts(there.api) == (int("redriven" in outcomes), 0, 0)


async def test_lag_counts_what_was_published_elsewhere(both: tuple[Side, Side]) -> None:
    """As soon as anybody could read it, though this gateway asked for the ends of the queues a moment before."""
    here, there = both
    await shop(here.api)

    for turn in range(OFTEN):
        assert await counts(there.api) == (turn, 0, 0)
        (stored,) = await publish(here.api, "more")
        await read(here.api, stored)

        assert await counts(there.api) == (turn + 1, 0, 0)


async def read(api: httpx.AsyncClient, stored: Json) -> None:
    """Read a message where it lies; the log waits until its broker shows it."""
    path = f"/v1/topics/orders/queues/{stored['queue']}/messages"
    answer = await api.get(path, params={"offset": stored["offset"], "max": 1})
    assert [message["id"] for message in answer.json()["messages"]] == [stored["id"]]


async def test_a_seek_to_latest_skips_what_was_redriven_elsewhere_before(both: tuple[Side, Side]) -> None:
    """Also as the first of its group."""
    here, there = both
    await first_redrive(here, there)

    await operate(there.api, "seek", to="latest")

    assert await counts(here.api) == (0, 0, 0)


async def test_a_seek_reaches_what_was_published_elsewhere_before(both: tuple[Side, Side]) -> None:
    """By offset: behind a message that is stored there is a place."""
    here, there = both
    await shop(here.api)

    for _ in range(OFTEN):
        await pass_by(there.api)
        (stored,) = await publish(here.api, "before")
        moved = await operate(there.api, "seek", to={stored["queue"]: stored["offset"] + 1})

        assert moved["queues"][0]["to"] == stored["offset"] + 1


async def test_a_group_that_begins_at_latest_has_nothing_of_before(both: tuple[Side, Side]) -> None:
    """Wherever it is registered."""
    here, there = both
    await shop(here.api, queues=2)

    for turn in range(OFTEN):
        await pass_by(there.api)
        await publish(here.api, "before")
        await put(there.api, f"groups/late{turn}", topic="orders", start="latest")

        assert await counts(there.api, f"late{turn}") == (0, 0, 0)
        assert await counts(here.api, f"late{turn}") == (0, 0, 0)


async def test_a_broadcast_client_has_nothing_of_before_it_came(both: tuple[Side, Side]) -> None:
    """Its first contact is where it begins, also where nobody has heard yet of what others stored."""
    here, there = both
    await shop(here.api, mode="broadcast")

    for turn in range(OFTEN):
        client = f"client-{turn}"
        await pass_by(there.api)
        await publish(here.api, "before")
        first = await receive(there.api, clientId=client)
        await publish(here.api, f"after {turn}")
        second = await receive(there.api, clientId=client, wait=LONG, max=10)

        assert (first["registered"], bodies(first["messages"])) == (True, [])
        assert bodies(second["messages"]) == [f"after {turn}"]


async def test_who_waits_elsewhere_before_a_redrive_is_woken_by_it(both: tuple[Side, Side]) -> None:
    """The first of its group or not."""
    here, there = both
    await shop(here.api, maxAttempts=1)
    await publish(here.api, "second chance")
    received = await receive(here.api, wait=LONG)
    for _ in range(2):
        await outcome(here.api, "nack", receipt_of(received))
        assert len(await dead(here.api)) == 1
        waiting = asyncio.create_task(receive(there.api, wait=LONG))
        await parked(there.gateway, 1)

        began = time.monotonic()
        await operate(here.api, "dead-letters/redrive", all=True)
        received = await waiting

        assert bodies(received["messages"]) == ["second chance"]
        assert time.monotonic() - began < LONG / 4
