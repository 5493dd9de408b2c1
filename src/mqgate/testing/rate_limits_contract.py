"""What every keeper of producers' rates promises."""

import asyncio
from datetime import timedelta

import pytest

from mqgate.core.entries import RateLimit
from mqgate.ports.rate_limits import RateLimitStore
from mqgate.testing.clock import ManualClock

__all__ = ["RateLimitsContract"]

_LIMIT = RateLimit(rate=10, burst=20)


class RateLimitsContract:
    """An adapter passes by providing `rates`, empty, and `clock`, the ManualClock it goes by."""

    async def test_a_bucket_begins_full_and_gives_no_more_than_there_is(self, rates: RateLimitStore) -> None:
        """A burst goes at once; part of what is asked for is better than nothing."""
        first, _ = await rates.take("shop", _LIMIT, 15)
        rest, _ = await rates.take("shop", _LIMIT, 15)
        none, _ = await rates.take("shop", _LIMIT, 15)

        assert (first, rest, none) == (15, 5, 0)

    async def test_it_is_refilled_at_the_rate(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """Neither faster nor slower, and what is less than a token is not lost."""
        await rates.take("shop", _LIMIT, 20)

        taken = []
        for _ in range(20):
            clock.advance(timedelta(milliseconds=150))
            taken.append((await rates.take("shop", _LIMIT, 20))[0])

        assert taken == [1, 2] * 10

    async def test_it_never_holds_more_than_the_burst(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """Whoever was silent for long does not flood."""
        await rates.take("shop", _LIMIT, 20)
        clock.advance(timedelta(hours=1))

        assert (await rates.take("shop", _LIMIT, 100))[0] == 20

    @pytest.mark.parametrize("max_count", [20, 25])
    async def test_it_says_when_there_is_one_more(
        self, rates: RateLimitStore, clock: ManualClock, max_count: int
    ) -> None:
        """Whoever waits so long gets one, and not before."""
        await rates.take("shop", _LIMIT, 20)
        clock.advance(timedelta(milliseconds=30))
        _, wait = await rates.take("shop", _LIMIT, max_count)

        clock.advance(timedelta(seconds=wait) - timedelta(milliseconds=1))
        early, _ = await rates.take("shop", _LIMIT, max_count)
        clock.advance(timedelta(milliseconds=1))
        in_time, _ = await rates.take("shop", _LIMIT, max_count)

        assert wait == pytest.approx(0.07)
        assert (early, in_time) == (0, 1)

    async def test_while_there_is_one_nobody_need_wait(self, rates: RateLimitStore) -> None:
        """The time is that of the next, not of all that were asked for."""
        _, wait = await rates.take("shop", _LIMIT, 19)

        assert wait == 0

    async def test_names_do_not_share(self, rates: RateLimitStore) -> None:
        """One producer's load is not another's."""
        await rates.take("shop", _LIMIT, 20)

        assert (await rates.take("other", _LIMIT, 20))[0] == 20

    async def test_a_changed_limit_counts_from_then_on(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """A smaller burst takes away what is above it; a larger one, or a higher rate, gives nothing at once."""
        slow, quick = RateLimit(rate=10, burst=5), RateLimit(rate=100, burst=50)

        smaller, _ = await rates.take("shop", _LIMIT, 1)
        smaller, _ = await rates.take("shop", slow, 20)
        larger, _ = await rates.take("shop", quick, 50)
        clock.advance(timedelta(milliseconds=100))
        later, _ = await rates.take("shop", quick, 50)

        assert (smaller, larger, later) == (5, 0, 10)

    async def test_a_rate_below_one_a_second_is_kept(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """One a minute, say."""
        limit = RateLimit(rate=1 / 60, burst=1)
        first, wait = await rates.take("shop", limit, 1)

        clock.advance(timedelta(seconds=59))
        early, left = await rates.take("shop", limit, 1)
        clock.advance(timedelta(seconds=2))
        late, _ = await rates.take("shop", limit, 1)

        assert (first, early, late) == (1, 0, 1)
        assert wait == pytest.approx(60)
        assert left == pytest.approx(1)

    async def test_those_who_come_at_once_share_what_there_is(self, rates: RateLimitStore) -> None:
        """Look and take are one step."""
        taken = await asyncio.gather(*(rates.take("shop", _LIMIT, 3) for _ in range(30)))

        assert sum(given for given, _ in taken) == 20

    async def test_a_clock_that_was_set_back_gives_nothing_twice(
        self, rates: RateLimitStore, clock: ManualClock
    ) -> None:
        """Else every correction of the time would be a burst."""
        await rates.take("shop", _LIMIT, 20)
        clock.advance(-timedelta(seconds=1))
        before, _ = await rates.take("shop", _LIMIT, 20)
        clock.advance(timedelta(seconds=1))

        assert before == 0
        assert (await rates.take("shop", _LIMIT, 20))[0] == 0
