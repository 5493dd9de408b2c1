"""Races that the older gateway lost, whose lock was several commands apart: here each is tried on two gateways at once.

It looked whether a lock had ended and then took it, so two could; it freed a lock without asking whose it was, so an
ack that came late, or twice, freed that of the next one; and it compared clocks of different machines
(test_skewed_clocks.py).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from message_calls import outcome, publish, put, receive
from sides import Side, on_rocketmq, opened

from mqgate.settings import Settings
from mqgate.testing.clock import ManualClock

pytestmark = on_rocketmq
CLIENTS = 64
VISIBILITY = 10


@pytest.fixture
async def apis(shared: Settings, tmp_path: Path, clock: ManualClock) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Two gateways whose store's clock the test moves."""
    async with opened(shared, tmp_path / "a", clock) as a, opened(shared, tmp_path / "b", clock) as b:
        yield [a.api, b.api]


async def shop(api: httpx.AsyncClient, queues: int, **group: object) -> None:
    await put(api, "topics/orders", queues=queues)
    await put(api, "groups/workers", **{"topic": "orders", "mode": "queue", "visibility": VISIBILITY, **group})


async def test_a_lock_that_ended_has_one_new_holder(apis: list[httpx.AsyncClient], clock: ManualClock) -> None:
    """Invariant 5: whoever comes in the very moment, at whichever gateway, one of them gets the queue."""
    await shop(apis[0], queues=1, maxAttempts=1_000, backoff=["0s"])
    await publish(apis[0], "wanted by all")
    receipts = []

    for turn in range(1, 11):
        answers = await asyncio.gather(*(receive(apis[number % 2]) for number in range(CLIENTS)))
        leases = [answer["lease"] for answer in answers if "lease" in answer]
        assert [lease["delivery"] for lease in leases] == [turn]
        receipts += [lease["receipt"] for lease in leases]
        clock.advance(VISIBILITY)

    assert await outcome(apis[0], "ack", receipts.pop()) == (200, "late_applied")
    assert {await outcome(apis[1], "ack", receipt) for receipt in receipts} == {(409, "lost")}


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_what_comes_late_or_twice_does_not_free_the_next_ones_lock(
    apis: list[httpx.AsyncClient], clock: ManualClock, verb: str
) -> None:
    """Invariants 6 and 16: the lock is its holder's, whatever others say at whichever gateway."""
    a, b = apis
    await shop(a, queues=1, backoff=["0s"])
    await publish(a, *range(9))
    slow = (await receive(a, max=3))["lease"]["receipt"]
    clock.advance(VISIBILITY)
    holder = (await receive(b, max=3))["lease"]["receipt"]

    late = await asyncio.gather(*(outcome(api, verb, slow) for api in (a, b) * 8))
    others = await asyncio.gather(*(receive(api) for api in (a, b) * 8))

    assert set(late) == {(409, "lost")}
    assert {answer["state"] for answer in others} == {"busy"}
    assert await outcome(a, "ack", holder) == (200, "applied")
    assert await outcome(b, "ack", holder) == (200, "duplicate")
    assert (await receive(b))["lease"]["start"] == 3


@pytest.mark.timeout(300)
async def test_while_no_lock_ends_no_batch_is_delivered_twice(both: tuple[Side, Side]) -> None:
    """Sixty-four clients go from gateway to gateway, and say every ack again elsewhere while others are served."""
    queues, each = 8, 60
    apis = [side.api for side in both]
    await shop(apis[0], queues, visibility="1h")
    sent = [await publish(apis[0], *range(queues * each // 4)) for _ in range(4)]
    delivered: Counter[tuple[str, int]] = Counter()
    outcomes: Counter[str] = Counter()

    async def client(name: int) -> None:
        receipts: list[str] = []
        turn = name
        while len(delivered) < queues * each:
            api, other = apis[turn % 2], apis[(turn + 1) % 2]
            answer = await receive(api, clientId=f"client {name}", max=5, wait=1, ack=receipts)
            outcomes.update(result["outcome"] for result in answer["acked"])
            delivered.update((message["queue"], message["offset"]) for message in answer["messages"])
            repeats = [(await outcome(other, "ack", receipt))[1] for receipt in receipts]
            outcomes.update(f"again {told}" for told in repeats)
            receipts = [answer["lease"]["receipt"]] if "lease" in answer else []
            turn += 1
        for receipt in receipts:
            outcomes[(await outcome(apis[turn % 2], "ack", receipt))[1]] += 1

    await asyncio.gather(*(client(name) for name in range(CLIENTS)))

    assert sum(len(stored) for stored in sent) == len(delivered) == queues * each
    assert set(delivered.values()) == {1}
    assert set(outcomes) == {"applied", "again duplicate"}
    lag = (await apis[0].get("/v1/groups/workers/lag")).json()
    assert (lag["lag"], lag["leased"]) == (0, 0)
