"""Races of the older gateway, whose lock took several commands, tried on two gateways at once.

It checked whether a lock had ended and then took it, so two consumers could get it. It released a lock without checking
its owner, so a late or repeated ack released the lock of the next consumer. It compared clocks of different machines
(see test_skewed_clocks.py).
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
    """Two gateways whose store uses a clock that the test moves."""
    async with opened(shared, tmp_path / "a", clock) as a, opened(shared, tmp_path / "b", clock) as b:
        yield [a.api, b.api]


async def shop(api: httpx.AsyncClient, queues: int, **group: object) -> None:
    await put(api, "topics/orders", queues=queues)
    await put(api, "groups/workers", **{"topic": "orders", "mode": "queue", "visibility": VISIBILITY, **group})


async def test_an_expired_lease_has_one_new_holder(apis: list[httpx.AsyncClient], clock: ManualClock) -> None:
    """Invariant 5: of concurrent receives at any gateways exactly one gets the queue."""
    await shop(apis[0], queues=1, maxAttempts=1_000, backoff=["0s"])
    await publish(apis[0], "wanted by all")
    receipts = []

    for turn in range(1, 11):
        responses = await asyncio.gather(*(receive(apis[number % 2]) for number in range(CLIENTS)))
        leases = [response["lease"] for response in responses if "lease" in response]
        assert [lease["delivery"] for lease in leases] == [turn]
        receipts += [lease["receipt"] for lease in leases]
        clock.advance(VISIBILITY)

    assert await outcome(apis[0], "ack", receipts.pop()) == (200, "late_applied")
    assert {await outcome(apis[1], "ack", receipt) for receipt in receipts} == {(409, "lost")}


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_a_late_or_repeated_ack_does_not_release_the_next_lease(
    apis: list[httpx.AsyncClient], clock: ManualClock, verb: str
) -> None:
    """Invariants 6 and 16: only the holder can release a lease, at any gateway."""
    a, b = apis
    await shop(a, queues=1, backoff=["0s"])
    await publish(a, *range(9))
    slow = (await receive(a, max=3))["lease"]["receipt"]
    clock.advance(VISIBILITY)
    holder = (await receive(b, max=3))["lease"]["receipt"]

    late = await asyncio.gather(*(outcome(api, verb, slow) for api in (a, b) * 8))
    others = await asyncio.gather(*(receive(api) for api in (a, b) * 8))

    assert set(late) == {(409, "lost")}
    assert {response["state"] for response in others} == {"busy"}
    assert await outcome(a, "ack", holder) == (200, "applied")
    assert await outcome(b, "ack", holder) == (200, "duplicate")
    assert (await receive(b))["lease"]["start"] == 3


@pytest.mark.timeout(300)
async def test_no_batch_is_delivered_twice_while_leases_last(both: tuple[Side, Side]) -> None:
    """Sixty-four clients alternate between the gateways, and repeat every ack at the other one."""
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
            response = await receive(api, clientId=f"client {name}", max=5, wait=1, ack=receipts)
            outcomes.update(result["outcome"] for result in response["acked"])
            delivered.update((message["queue"], message["offset"]) for message in response["messages"])
            repeats = [(await outcome(other, "ack", receipt))[1] for receipt in receipts]
            outcomes.update(f"again {repeated}" for repeated in repeats)
            receipts = [response["lease"]["receipt"]] if "lease" in response else []
            turn += 1
        for receipt in receipts:
            outcomes[(await outcome(apis[turn % 2], "ack", receipt))[1]] += 1

    await asyncio.gather(*(client(name) for name in range(CLIENTS)))

    assert sum(len(stored) for stored in sent) == len(delivered) == queues * each
    assert set(delivered.values()) == {1}
    assert set(outcomes) == {"applied", "again duplicate"}
    lag = (await apis[0].get("/v1/groups/workers/lag")).json()
    assert (lag["lag"], lag["leased"]) == (0, 0)
