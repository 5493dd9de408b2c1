"""The contract of rate-limit stores."""

import asyncio
from datetime import timedelta

import pytest

from mqgate.core.entries import RateLimit
from mqgate.ports.rate_limits import RateLimitStore
from mqgate.testing.clock import ManualClock

__all__ = ["RateLimitsContract"]

_LIMIT = RateLimit(rate=10, burst=20)


class RateLimitsContract:
    """Tests of a rate-limit store. An adapter provides `rates` (empty) and `clock`, the ManualClock that it uses."""

    async def test_a_bucket_is_full_at_first_and_never_overdrawn(self, rates: RateLimitStore) -> None:
        """A burst is granted at once. A partial grant is better than none."""
        first, _ = await rates.take("shop", _LIMIT, 15)
        rest, _ = await rates.take("shop", _LIMIT, 15)
        none, _ = await rates.take("shop", _LIMIT, 15)

        assert (first, rest, none) == (15, 5, 0)

    async def test_a_bucket_is_refilled_at_its_rate(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """Fractions of a token must not be lost."""
        await rates.take("shop", _LIMIT, 20)

        taken = []
        for _ in range(20):
            clock.advance(timedelta(milliseconds=150))
            taken.append((await rates.take("shop", _LIMIT, 20))[0])

        assert taken == [1, 2] * 10

    async def test_a_bucket_never_exceeds_its_burst(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """A producer that was idle must not flood the log."""
        await rates.take("shop", _LIMIT, 20)
        clock.advance(timedelta(hours=1))

        assert (await rates.take("shop", _LIMIT, 100))[0] == 20

    @pytest.mark.parametrize("max_count", [20, 25])
    async def test_the_returned_wait_ends_when_one_token_is_available(
        self, rates: RateLimitStore, clock: ManualClock, max_count: int
    ) -> None:
        """A producer that waits this long must get a token, and not earlier."""
        await rates.take("shop", _LIMIT, 20)
        clock.advance(timedelta(milliseconds=30))
        _, wait = await rates.take("shop", _LIMIT, max_count)

        clock.advance(timedelta(seconds=wait) - timedelta(milliseconds=1))
        early, _ = await rates.take("shop", _LIMIT, max_count)
        clock.advance(timedelta(milliseconds=1))
        in_time, _ = await rates.take("shop", _LIMIT, max_count)

        assert wait == pytest.approx(0.07)
        assert (early, in_time) == (0, 1)

    async def test_the_wait_is_zero_while_a_token_is_left(self, rates: RateLimitStore) -> None:
        """The wait is for the next token, not for all requested ones."""
        _, wait = await rates.take("shop", _LIMIT, 19)

        assert wait == 0

    async def test_buckets_of_different_names_are_independent(self, rates: RateLimitStore) -> None:
        """One producer must not use up the rate of another."""
        await rates.take("shop", _LIMIT, 20)

        assert (await rates.take("other", _LIMIT, 20))[0] == 20

    async def test_a_changed_limit_applies_at_once(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """A smaller burst removes tokens. A larger burst or rate adds none at once."""
        slow, quick = RateLimit(rate=10, burst=5), RateLimit(rate=100, burst=50)

        smaller, _ = await rates.take("shop", _LIMIT, 1)
        smaller, _ = await rates.take("shop", slow, 20)
        larger, _ = await rates.take("shop", quick, 50)
        clock.advance(timedelta(milliseconds=100))
        later, _ = await rates.take("shop", quick, 50)

        assert (smaller, larger, later) == (5, 0, 10)

    async def test_a_rate_below_one_per_second_is_supported(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """Operators may limit a producer to one message per minute."""
        limit = RateLimit(rate=1 / 60, burst=1)
        first, wait = await rates.take("shop", limit, 1)

        clock.advance(timedelta(seconds=59))
        early, left = await rates.take("shop", limit, 1)
        clock.advance(timedelta(seconds=2))
        late, _ = await rates.take("shop", limit, 1)

        assert (first, early, late) == (1, 0, 1)
        assert wait == pytest.approx(60)
        assert left == pytest.approx(1)

    async def test_concurrent_takes_share_the_tokens(self, rates: RateLimitStore) -> None:
        """Reading and taking must be one atomic step."""
        taken = await asyncio.gather(*(rates.take("shop", _LIMIT, 3) for _ in range(30)))

        assert sum(given for given, _ in taken) == 20

    async def test_a_clock_that_moves_backwards_adds_no_tokens(self, rates: RateLimitStore, clock: ManualClock) -> None:
        """Otherwise every clock correction would allow a burst."""
        await rates.take("shop", _LIMIT, 20)
        clock.advance(-timedelta(seconds=1))
        before, _ = await rates.take("shop", _LIMIT, 20)
        clock.advance(timedelta(seconds=1))

        assert before == 0
        assert (await rates.take("shop", _LIMIT, 20))[0] == 0
