"""A producer's rate, kept by several gateways that take slices of one bucket."""

import asyncio
import random
from datetime import timedelta

import pytest

from mqgate.adapters.local.rate_limits import LocalRateLimits
from mqgate.core.entries import RateLimit
from mqgate.production.rate_limiter import ProducerRateLimiter
from mqgate.testing.clock import ManualClock

SLICE = timedelta(milliseconds=100)


class Counted(LocalRateLimits):
    """The bucket that all gateways share; it counts what it is asked, and can be made to take its time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(lambda: clock.now)
        self.asked: list[int] = []
        self.taken = 0
        self.at_once = 0
        self.most_at_once = 0
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def take(self, name: str, limit: RateLimit, max_count: int) -> tuple[int, float]:
        self.asked.append(max_count)
        self.is_asked.set()
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await self.may_answer.wait()
        given, wait = await super().take(name, limit, max_count)
        self.at_once -= 1
        self.taken += given
        return given, wait


@pytest.fixture
def rates(clock: ManualClock) -> Counted:
    return Counted(clock)


@pytest.fixture
def gateways(rates: Counted, clock: ManualClock) -> list[ProducerRateLimiter]:
    return [ProducerRateLimiter(rates, lambda: clock.now) for _ in range(4)]


async def run(
    gateways: list[ProducerRateLimiter],
    clock: ManualClock,
    limit: RateLimit,
    *,
    every_ms: int,
    seconds: int,
    count: int = 1,
) -> int:
    """Messages that were let through, sent one after the other to one gateway after the other."""
    passed = 0
    for turn in range(seconds * 1000 // every_ms):
        allowed, _ = await gateways[turn % len(gateways)].take("shop", limit, count)
        passed += allowed
        clock.advance(timedelta(milliseconds=every_ms))
    return passed


@pytest.mark.parametrize("every_ms", [1, 3, 7, 150])
async def test_the_rate_is_never_exceeded_over_all_gateways(
    gateways: list[ProducerRateLimiter], clock: ManualClock, every_ms: int
) -> None:
    """Four gateways let through what one bucket gives, not four times as much."""
    limit = RateLimit(rate=100, burst=20)

    passed = await run(gateways, clock, limit, every_ms=every_ms, seconds=10, count=5)

    assert passed <= limit.burst + 10 * limit.rate


@pytest.mark.parametrize("every_ms", [1, 5])
async def test_a_steady_load_above_the_rate_gets_all_of_it(
    gateways: list[ProducerRateLimiter], clock: ManualClock, every_ms: int
) -> None:
    """What is taken is used: slices cost nothing where there is enough to do."""
    limit = RateLimit(rate=100, burst=10)

    passed = await run(gateways, clock, limit, every_ms=every_ms, seconds=10)

    assert passed >= 0.98 * 10 * limit.rate


@pytest.mark.parametrize("every_ms", [10, 12, 25, 60, 110, 150, 400])
async def test_a_steady_producer_within_its_rate_is_never_refused(
    gateways: list[ProducerRateLimiter], clock: ManualClock, every_ms: int
) -> None:
    """Also at exactly its rate, spread over gateways, each of which sees little of it: no reserve lapses."""
    limit = RateLimit(rate=100, burst=10)

    passed = await run(gateways, clock, limit, every_ms=every_ms, seconds=20)

    assert passed == 20_000 // every_ms


async def test_a_lone_slow_producer_takes_only_what_it_needs(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock
) -> None:
    """A reserve of what the rate gives in a slice would be lost each time."""
    await run(gateways, clock, RateLimit(rate=1000, burst=1000), every_ms=500, seconds=20)

    assert rates.taken == 40


@pytest.mark.parametrize("seed", range(5))
async def test_within_half_of_its_limit_nobody_is_refused_however_it_comes(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock, seed: int
) -> None:
    """What lapses is at max_count what was used: the bound that the slices promise, under a load made to be bad."""
    limit = RateLimit(rate=1000, burst=200)
    half = RateLimit(rate=500, burst=100 - 1000 * SLICE.total_seconds() / 2)
    keeping, dice = LocalRateLimits(lambda: clock.now), random.Random(seed)
    passed = sent = 0

    for _ in range(3_000):
        # Now all in one place, now scattered, now nothing for a while; as much as half of the limit allows.
        count, _ = await keeping.take("shop", half, dice.choice([5, 50, 50]))
        sent += count
        passed += (await dice.choice(gateways).take("shop", limit, count))[0] if count else 0
        clock.advance(timedelta(milliseconds=dice.choice([0, 1, 20, 60, 130])))

    assert passed == sent
    assert passed < rates.taken <= 2 * passed


async def test_a_load_is_served_from_slices(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock
) -> None:
    """The store is asked about once a slice, not for every message."""
    await run(gateways[:1], clock, RateLimit(rate=10_000, burst=10_000), every_ms=1, seconds=1)
    begun = len(rates.asked)

    await run(gateways[:1], clock, RateLimit(rate=10_000, burst=10_000), every_ms=1, seconds=10)

    assert len(rates.asked) - begun <= 110


async def test_what_is_left_of_a_slice_lapses(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock
) -> None:
    """Tokens kept for later would be a second burst."""
    limit = RateLimit(rate=1000, burst=1000)
    await run(gateways[:1], clock, limit, every_ms=10, seconds=1)
    reserved = rates.taken - 100

    clock.advance(3 * SLICE)
    asked = len(rates.asked)
    await gateways[0].take("shop", limit, 1)

    assert reserved >= 0
    assert rates.asked[asked:] == [1]


async def test_one_asks_for_all_who_wait(gateways: list[ProducerRateLimiter], rates: Counted) -> None:
    """Many requests at once are two questions: the first one's, and one for those who came meanwhile."""
    limit = RateLimit(rate=100, burst=100)
    rates.may_answer.clear()
    taking = [asyncio.create_task(gateways[0].take("shop", limit, 1)) for _ in range(60)]
    await rates.is_asked.wait()
    taking += [asyncio.create_task(gateways[0].take("shop", limit, 1)) for _ in range(60)]
    await asyncio.sleep(0)

    rates.may_answer.set()
    allowed = [count for count, _ in await asyncio.gather(*taking)]

    assert sum(allowed) == 100
    assert rates.most_at_once == 1
    assert len(rates.asked) <= 3


async def test_while_there_is_nothing_the_store_is_left_alone(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock
) -> None:
    """A producer that does not heed its refusals must not load the store with them; and is told when to come."""
    limit = RateLimit(rate=2, burst=3)
    await gateways[0].take("shop", limit, 5)
    asked = len(rates.asked)

    refused = [await gateways[0].take("shop", limit, 1) for _ in range(100)]
    clock.advance(timedelta(seconds=refused[-1][1]))
    allowed, _ = await gateways[0].take("shop", limit, 1)

    assert refused == [(0, 0.5)] * 100
    assert len(rates.asked) == asked + 1
    assert allowed == 1


async def test_a_changed_limit_counts_at_once(gateways: list[ProducerRateLimiter], clock: ManualClock) -> None:
    """An admin who raises the rate need not wait for the old one's refusals to end."""
    await gateways[0].take("shop", RateLimit(rate=0.001, burst=1), 1)
    refused, _ = await gateways[0].take("shop", RateLimit(rate=0.001, burst=1), 1)

    clock.advance(timedelta(milliseconds=10))
    allowed, _ = await gateways[0].take("shop", RateLimit(rate=1000, burst=1000), 1)

    assert (refused, allowed) == (0, 1)


async def test_who_leaves_while_the_store_is_asked_keeps_nobody_waiting(
    gateways: list[ProducerRateLimiter], rates: Counted
) -> None:
    """Clients hang up; the next in line asks."""
    limit = RateLimit(rate=100, burst=100)
    rates.may_answer.clear()
    first, second = (asyncio.create_task(gateways[0].take("shop", limit, 1)) for _ in range(2))
    await rates.is_asked.wait()

    first.cancel()
    await asyncio.wait((first,))
    rates.may_answer.set()

    assert (await second)[0] == 1


async def test_a_clock_that_was_set_back_refuses_nobody_for_long(
    gateways: list[ProducerRateLimiter], clock: ManualClock
) -> None:
    """Not until the old time comes again."""
    limit = RateLimit(rate=10, burst=1)
    await gateways[0].take("shop", limit, 2)

    clock.advance(-timedelta(hours=1))
    _, wait = await gateways[0].take("shop", limit, 1)

    assert wait <= 1
