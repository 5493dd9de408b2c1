"""The rate of a producer over several gateways that take slices of one bucket."""

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
    """The bucket that all gateways share. It counts calls, and can delay them."""

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
    """Send messages to the gateways in turn. Return how many were accepted."""
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
    """Four gateways together accept what one bucket allows."""
    limit = RateLimit(rate=100, burst=20)

    passed = await run(gateways, clock, limit, every_ms=every_ms, seconds=10, count=5)

    assert passed <= limit.burst + 10 * limit.rate


@pytest.mark.parametrize("every_ms", [1, 5])
async def test_a_steady_load_above_the_rate_uses_the_whole_rate(
    gateways: list[ProducerRateLimiter], clock: ManualClock, every_ms: int
) -> None:
    """Under load every drawn token is used."""
    limit = RateLimit(rate=100, burst=10)

    passed = await run(gateways, clock, limit, every_ms=every_ms, seconds=10)

    assert passed >= 0.98 * 10 * limit.rate


@pytest.mark.parametrize("every_ms", [10, 12, 25, 60, 110, 150, 400])
async def test_a_steady_producer_within_its_rate_is_never_refused(
    gateways: list[ProducerRateLimiter], clock: ManualClock, every_ms: int
) -> None:
    """Even at exactly its rate, spread over gateways that each see a part of it: no token lapses."""
    limit = RateLimit(rate=100, burst=10)

    passed = await run(gateways, clock, limit, every_ms=every_ms, seconds=20)

    assert passed == 20_000 // every_ms


async def test_a_lone_slow_producer_takes_only_what_it_needs(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock
) -> None:
    """Tokens drawn for a whole slice would lapse each time."""
    await run(gateways, clock, RateLimit(rate=1000, burst=1000), every_ms=500, seconds=20)

    assert rates.taken == 40


@pytest.mark.parametrize("seed", range(5))
async def test_a_producer_within_half_of_its_rate_is_never_refused(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock, seed: int
) -> None:
    """At most as many tokens lapse as are used: the bound of the slices, under an adversarial load."""
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
    """The store is called about once per slice and not for every message."""
    await run(gateways[:1], clock, RateLimit(rate=10_000, burst=10_000), every_ms=1, seconds=1)
    begun = len(rates.asked)

    await run(gateways[:1], clock, RateLimit(rate=10_000, burst=10_000), every_ms=1, seconds=10)

    assert len(rates.asked) - begun <= 110


async def test_unused_tokens_of_a_slice_lapse(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock
) -> None:
    """Tokens that are kept for later would be a second burst."""
    limit = RateLimit(rate=1000, burst=1000)
    await run(gateways[:1], clock, limit, every_ms=10, seconds=1)
    reserved = rates.taken - 100

    clock.advance(3 * SLICE)
    asked = len(rates.asked)
    await gateways[0].take("shop", limit, 1)

    assert reserved >= 0
    assert rates.asked[asked:] == [1]


async def test_waiting_publishes_share_one_call(gateways: list[ProducerRateLimiter], rates: Counted) -> None:
    """Many concurrent publishes cause two calls: that of the first, and one for those that arrived meanwhile."""
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


async def test_an_empty_bucket_is_not_queried_before_the_next_token(
    gateways: list[ProducerRateLimiter], rates: Counted, clock: ManualClock
) -> None:
    """A producer that ignores refusals must not load the store. It gets the time of the next token."""
    limit = RateLimit(rate=2, burst=3)
    await gateways[0].take("shop", limit, 5)
    asked = len(rates.asked)

    refused = [await gateways[0].take("shop", limit, 1) for _ in range(100)]
    clock.advance(timedelta(seconds=refused[-1][1]))
    allowed, _ = await gateways[0].take("shop", limit, 1)

    assert refused == [(0, 0.5)] * 100
    assert len(rates.asked) == asked + 1
    assert allowed == 1


async def test_a_changed_limit_applies_at_once(gateways: list[ProducerRateLimiter], clock: ManualClock) -> None:
    """After a raise, refusals of the old rate must end."""
    await gateways[0].take("shop", RateLimit(rate=0.001, burst=1), 1)
    refused, _ = await gateways[0].take("shop", RateLimit(rate=0.001, burst=1), 1)

    clock.advance(timedelta(milliseconds=10))
    allowed, _ = await gateways[0].take("shop", RateLimit(rate=1000, burst=1000), 1)

    assert (refused, allowed) == (0, 1)


async def test_a_cancelled_publish_does_not_block_the_others(
    gateways: list[ProducerRateLimiter], rates: Counted
) -> None:
    """Clients disconnect. The next publish calls the store."""
    limit = RateLimit(rate=100, burst=100)
    rates.may_answer.clear()
    first, second = (asyncio.create_task(gateways[0].take("shop", limit, 1)) for _ in range(2))
    await rates.is_asked.wait()

    first.cancel()
    await asyncio.wait((first,))
    rates.may_answer.set()

    assert (await second)[0] == 1


async def test_a_clock_that_is_set_back_does_not_extend_refusals(
    gateways: list[ProducerRateLimiter], clock: ManualClock
) -> None:
    """Refusals must not last until the old time is reached again."""
    limit = RateLimit(rate=10, burst=1)
    await gateways[0].take("shop", limit, 2)

    clock.advance(-timedelta(hours=1))
    _, wait = await gateways[0].take("shop", limit, 1)

    assert wait <= 1
