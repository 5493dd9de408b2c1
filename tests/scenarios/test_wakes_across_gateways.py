"""Wake-ups across gateways: a parked receive is woken by a change at another gateway, without polling."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from message_calls import Call, Json, ack, bodies, dead, operate, outcome, parked, publish, receive, shop, take
from sides import Side, on_rocketmq

from mqgate.adapters.redis.lease_store import RedisLeaseStore

pytestmark = on_rocketmq
LONG = 20
AuditEntry = Callable[[], Awaitable[object]]


async def woken(there: Side, act: AuditEntry, count: int = 1) -> Json:
    """Return what one of the clients parked there receives after a change elsewhere."""
    waiting = [asyncio.create_task(receive(there.api, wait=LONG)) for _ in range(count)]
    await parked(there.gateway, count)
    began, before = time.monotonic(), round_trips(there)

    await act()
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    took = time.monotonic() - began
    assert took < LONG / 4
    # The step that found it, perhaps one that was too late, and the periodic writes, but not a step per parked receive.
    assert round_trips(there) - before <= 4 + took
    for task in rest:
        task.cancel()
    return done.pop().result()


def round_trips(side: Side) -> int:
    assert isinstance(side.gateway.leases, RedisLeaseStore)
    return side.gateway.leases._redis.round_trips


@pytest.mark.parametrize("delay", [0, 1])
async def test_a_nack_wakes_at_once_or_when_its_delay_is_over(both: tuple[Side, Side], delay: int) -> None:
    """A redelivery must reach receives at every gateway."""
    here, there = both
    await shop(here.api, visibility="10m")
    await publish(here.api, "again")
    (message,) = await take(here.api)

    received = await woken(there, lambda: outcome(here.api, "nack", message, delay=delay), count=10)

    assert [(message["body"], message["delivery"]) for message in received["messages"]] == [("again", 2)]


async def test_an_expired_lease_wakes_elsewhere(both: tuple[Side, Side]) -> None:
    """Its holder and its gateway may have crashed, so nothing announces the expiry."""
    here, there = both
    await shop(here.api, visibility="2s", backoff=["0s"])
    await publish(here.api, "left alone")
    await take(here.api)

    async def nothing() -> None: ...

    received = await woken(there, nothing)

    assert [(message["body"], message["delivery"]) for message in received["messages"]] == [("left alone", 2)]


async def test_a_seek_wakes_elsewhere(both: tuple[Side, Side]) -> None:
    """The repeated messages are ready at once."""
    here, there = both
    await shop(here.api)
    await publish(here.api, "once more")
    await ack(here.api, *await take(here.api))

    received = await woken(there, lambda: operate(here.api, "seek", to="earliest"), count=10)

    assert bodies(received["messages"]) == ["once more"]


async def test_an_ack_below_the_cap_wakes_elsewhere(both: tuple[Side, Side]) -> None:
    """At the cap a receive parks. The cap applies to the group, at whichever gateway a message is settled."""
    here, there = both
    await shop(here.api, maxInFlight=1)
    await publish(here.api, "first", "second")
    messages = await take(here.api)

    received = await woken(there, lambda: ack(here.api, *messages), count=10)

    assert bodies(messages + received["messages"]) == ["first", "second"]


@pytest.mark.parametrize(("verb", "start"), [("ack", 1), ("nack", 0)])
async def test_a_released_queue_wakes_elsewhere(both: tuple[Side, Side], verb: str, start: int) -> None:
    """In queue mode with one queue, this is the only way that another consumer continues."""
    here, there = both
    await shop(here.api, mode="queue", backoff=["0s"])
    await publish(here.api, "first", "second")
    lease = (await receive(here.api, max=1))["lease"]

    received = await woken(there, lambda: outcome(here.api, verb, lease["receipt"]), count=10)

    assert received["lease"]["start"] == start


async def test_messages_of_a_disconnected_client_wake_elsewhere(both: tuple[Side, Side]) -> None:
    """Invariant 20: a client acks, asks for more and disconnects. A receive at the other gateway gets the messages."""
    here, there = both
    await shop(here.api, maxInFlight=1)
    await publish(here.api, "first", "second")
    (message,) = await take(here.api)

    received = await woken(there, lambda: Call(here.gateway, is_disconnected=True, ack=[message["receipt"]]).response())

    assert [(message["body"], message["delivery"]) for message in received["messages"]] == [("second", 1)]


async def test_the_next_message_of_a_key_wakes_elsewhere(both: tuple[Side, Side]) -> None:
    """Ordered group: the ack of the first message makes the second one ready."""
    here, there = both
    await shop(here.api, ordered=True)
    await publish(here.api, "first", "second", key="k")
    messages = await take(here.api)

    received = await woken(there, lambda: ack(here.api, *messages), count=10)

    assert bodies(messages + received["messages"]) == ["first", "second"]


async def test_a_redriven_dead_letter_wakes_elsewhere(both: tuple[Side, Side]) -> None:
    """It is stored in a private log that the other gateway may not know yet."""
    here, there = both
    await shop(here.api, maxAttempts=1)
    await publish(here.api, "second chance")
    (message,) = await take(here.api)
    await outcome(here.api, "nack", message)
    assert len(await dead(here.api)) == 1

    received = await woken(there, lambda: operate(here.api, "dead-letters/redrive", all=True))

    assert bodies(received["messages"]) == ["second chance"]


async def test_parked_receives_cause_no_traffic_to_redis(both: tuple[Side, Side]) -> None:
    """Each receive sends one step when it starts and one before it ends, however long it waits."""
    here, there = both
    clients, waits = 20, (1, 4)
    await shop(here.api)
    await receive(there.api)
    cost = []

    for wait in waits:
        before = round_trips(there)
        await asyncio.gather(*(receive(there.api, wait=wait) for _ in range(clients)))
        cost.append(round_trips(there) - before)

    # And the group's offsets, asked for by the mirror every few seconds.
    assert all(2 * clients <= request <= 2 * clients + 3 for request in cost), cost
