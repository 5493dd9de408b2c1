"""A producer's rate over all gateways, without a question to the store for every message.

Tokens lie in the store. A gateway takes what its callers need and, with it, a reserve for the rest of the slice: what
the producer used here in the slice before, less what it has used in this one. A slice lasts 100 ms; what is left of
the reserve then lapses.

- Never exceeded: a message costs a token of the store's bucket, taken at most a slice (and the asking) before it.
- What lapses in a slice is at most what was used in the slice before, and none at all while a producer uses as much as
  before. So gateways take from the store at most twice what is used, the second time a slice or two later: a producer
  that keeps to half of its rate, in bursts of half of its burst less a slice's worth, is never refused because of
  lapses, however its messages are spread over gateways. One that is steady gets its whole rate.
- One that is slow, with less than a message a slice here, has no reserve: it takes what it needs, and nothing lapses.
  A reserve of the rate's own 100 ms would not do: with ten gateways, a tenth of the rate would use it all up.
- One at a time asks for a producer, also for those who wait meanwhile. After the store had too few, nobody asks until
  there is one more; nor more often than 100 times a second, unless the bucket would overflow.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from mqgate.core.entries import RateLimit
from mqgate.ports.rate_limits import RateLimitStore

__all__ = ["ProducerRateLimiter"]

_LENGTH = timedelta(milliseconds=100)
_ASKED_AGAIN = 0.01


class _Slice:
    """The tokens of a producer on this gateway: left, used in this slice, and used in the slice before."""

    __slots__ = ("before", "began", "empty_until", "left", "limit", "turn", "used", "wanted")

    def __init__(self, limit: RateLimit, now: datetime) -> None:
        self.limit = limit
        self.began = now
        self.left = 0
        self.used = 0
        self.before = 0
        self.wanted = 0
        self.empty_until = now
        self.turn = asyncio.Lock()

    def move(self, now: datetime) -> None:
        """Start the next slice if the current one has ended."""
        age = now - self.began
        if timedelta(0) <= age < _LENGTH:
            return
        if age < timedelta(0):
            # The clock was set back, so a time in the future may be far away now.
            self.empty_until = now
        self.before = self.used if _LENGTH <= age < 2 * _LENGTH else 0
        self.began, self.left, self.used = now, 0, 0


class ProducerRateLimiter:
    def __init__(self, rates: RateLimitStore, clock: Callable[[], datetime]) -> None:
        self._rates = rates
        self._clock = clock
        self._slices: dict[str, _Slice] = {}

    async def take(self, name: str, limit: RateLimit, count: int) -> tuple[int, float]:
        """Return how many of `count` messages are allowed now, and the seconds until the next one is."""
        held = self._slices.get(name)
        if held is None or held.limit != limit:
            held = self._slices[name] = _Slice(limit, self._clock())
        held.wanted += count
        try:
            async with held.turn:
                return await self._take(name, held, count)
        finally:
            held.wanted -= count

    async def _take(self, name: str, held: _Slice, count: int) -> tuple[int, float]:
        now = self._clock()
        held.move(now)
        if held.left < count and now >= held.empty_until:
            now = await self._ask(name, held)
        allowed = min(count, held.left)
        held.left -= allowed
        held.used += allowed
        return allowed, (held.empty_until - now).total_seconds()

    async def _ask(self, name: str, held: _Slice) -> datetime:
        """Draw tokens for all waiting callers and the reserve; return the time of the response."""
        limit = held.limit
        most = max(held.wanted, held.before - held.used) - held.left
        given, wait = await self._rates.take(name, limit, most)
        now = self._clock()
        left = held.left + given
        # The call may have taken longer than a slice. The tokens that were just drawn must not lapse.
        held.move(now)
        held.left = left
        if given < most:
            held.empty_until = now + timedelta(seconds=max(wait, min(_ASKED_AGAIN, limit.burst / limit.rate)))
        return now
