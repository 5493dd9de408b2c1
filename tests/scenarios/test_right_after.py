"""What one gateway has confirmed applies to the next request at another one, whatever that one had cached."""

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
    """Redrive the first dead letter of the group here, after the other gateway saw that the group had none."""
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
async def test_a_redriven_message_is_received_at_another_gateway_at_once(both: tuple[Side, Side], mode: str) -> None:
    """The redrive created the private log of the group, which the other gateway does not know yet."""
    here, there = both
    await first_redrive(here, there, mode=mode)

    messages = await take(there.api)

    assert bodies(messages) == ["second chance"]


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_redriven_message_can_be_exhausted_at_another_gateway(both: tuple[Side, Side], mode: str) -> None:
    """Any gateway accepts the nack, shows the dead letter and counts the lag."""
    here, there = both
    await first_redrive(here, there, mode=mode)
    received = await receive(here.api)

    nacked = await outcome(there.api, "nack", receipt_of(received), reason="again")

    assert nacked == (200, "applied")
    assert [(letter["reason"], letter["deliveries"]) for letter in await dead(there.api)] == [("again", 1)]
    assert await counts(there.api) == (0, 0, 0)


async def test_the_lag_at_another_gateway_includes_a_redriven_message(both: tuple[Side, Side]) -> None:
    """With its age."""
    here, there = both
    await first_redrive(here, there)

    assert await counts(there.api) == (1, 0, 0)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_receive_that_parks_right_after_a_redrive_elsewhere_gets_the_message(
    both: tuple[Side, Side], is_first: bool
) -> None:
    """The wake-up was sent before the receive parked, so its first try must find the message."""
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


async def read_bounds(there: httpx.AsyncClient) -> None:
    """Receive at a gateway, so that it has cached the current bounds."""
    await there.get("/v1/topics/orders/queues")


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_seek_to_latest_skips_messages_published_elsewhere_before(both: tuple[Side, Side], mode: str) -> None:
    """A seek is exact: earlier messages are skipped, later ones are delivered."""
    here, there = both
    await shop(here.api, queues=2, mode=mode)

    for turn in range(OFTEN):
        await read_bounds(there.api)
        await publish(here.api, "before")
        await operate(there.api, "seek", to="latest")
        await publish(here.api, f"after {turn}")

        received = await receive(there.api, wait=LONG, max=10)
        assert bodies(received["messages"]) == [f"after {turn}"]
        assert await outcome(there.api, "ack", receipt_of(received)) == (200, "applied")


async def test_a_concurrent_redrive_at_two_gateways_delivers_once(both: tuple[Side, Side]) -> None:
    """One of them redrives it, and the other reports that it was not found. The same holds for a purge."""
    here, there = both
    await shop(here.api, maxAttempts=1)
    (stored,) = await publish(here.api, "second chance")
    await outcome(here.api, "nack", receipt_of(await receive(here.api, wait=LONG)))

    responses = await asyncio.gather(
        operate(here.api, "dead-letters/redrive", ids=[stored["id"]]),
        operate(there.api, "dead-letters/redrive", ids=[stored["id"]]),
        operate(there.api, "dead-letters/purge", ids=[stored["id"]]),
    )

    outcomes = sorted(response["results"][0]["outcome"] for response in responses)
    assert outcomes in (["not_found", "not_found", "redriven"], ["not_found", "not_found", "purged"])
    assert await counts(there.api) == (int("redriven" in outcomes), 0, 0)


async def test_lag_includes_messages_published_elsewhere(both: tuple[Side, Side]) -> None:
    """As soon as they are readable, although this gateway read the bounds a moment before."""
    here, there = both
    await shop(here.api)

    for turn in range(OFTEN):
        assert await counts(there.api) == (turn, 0, 0)
        (stored,) = await publish(here.api, "more")
        await read(here.api, stored)

        assert await counts(there.api) == (turn + 1, 0, 0)


async def read(api: httpx.AsyncClient, stored: Json) -> None:
    """Read a message at its position. The log waits until its broker shows it."""
    path = f"/v1/topics/orders/queues/{stored['queue']}/messages"
    response = await api.get(path, params={"offset": stored["offset"], "max": 1})
    assert [message["id"] for message in response.json()["messages"]] == [stored["id"]]


async def test_a_seek_to_latest_skips_messages_redriven_elsewhere_before(both: tuple[Side, Side]) -> None:
    """This includes the first redriven message of the group."""
    here, there = both
    await first_redrive(here, there)

    await operate(there.api, "seek", to="latest")

    assert await counts(here.api) == (0, 0, 0)


async def test_a_seek_to_an_offset_published_elsewhere_succeeds(both: tuple[Side, Side]) -> None:
    """The offset after a stored message is a valid target."""
    here, there = both
    await shop(here.api)

    for _ in range(OFTEN):
        await read_bounds(there.api)
        (stored,) = await publish(here.api, "before")
        moved = await operate(there.api, "seek", to={stored["queue"]: stored["offset"] + 1})

        assert moved["queues"][0]["to"] == stored["offset"] + 1


async def test_a_group_that_starts_at_latest_gets_no_earlier_messages(both: tuple[Side, Side]) -> None:
    """Whichever gateway registers it."""
    here, there = both
    await shop(here.api, queues=2)

    for turn in range(OFTEN):
        await read_bounds(there.api)
        await publish(here.api, "before")
        await put(there.api, f"groups/late{turn}", topic="orders", start="latest")

        assert await counts(there.api, f"late{turn}") == (0, 0, 0)
        assert await counts(here.api, f"late{turn}") == (0, 0, 0)


async def test_a_new_broadcast_client_gets_no_earlier_messages(both: tuple[Side, Side]) -> None:
    """It starts at its first receive, also at a gateway that does not know of messages stored by others."""
    here, there = both
    await shop(here.api, mode="broadcast")

    for turn in range(OFTEN):
        client = f"client-{turn}"
        await read_bounds(there.api)
        await publish(here.api, "before")
        first = await receive(there.api, clientId=client)
        await publish(here.api, f"after {turn}")
        second = await receive(there.api, clientId=client, wait=LONG, max=10)

        assert (first["registered"], bodies(first["messages"])) == (True, [])
        assert bodies(second["messages"]) == [f"after {turn}"]


async def test_a_redrive_wakes_a_receive_at_another_gateway(both: tuple[Side, Side]) -> None:
    """Whether or not it is the first of its group."""
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
