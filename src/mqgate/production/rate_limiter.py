"""The rate limit of a producer over all gateways, without a store call per message.

The token bucket is in the store. A gateway draws the tokens that its callers need, plus a reserve for the rest of the
slice of 100 ms: what the producer used here in the previous slice, less what it has used in this one. Unused tokens of
the reserve lapse at the end of the slice.

- The limit is never exceeded: a message costs a token that was drawn at most one slice before it.
- At most as many tokens lapse in a slice as were used in the previous one, and none while the usage is steady. A
  producer that uses half of its rate and burst is never refused because of lapses, however its messages are spread over
  gateways. A steady producer gets its whole rate.
- A producer with less than one message per slice has no reserve, so nothing lapses. A reserve of 100 ms of the rate
  would not do: with ten gateways, a tenth of the rate would use all of it up.
- One call per producer is made at a time, for all callers that wait. After the bucket was empty, no call is made until
  it has a token, and at most 100 per second, unless the bucket would overflow.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from mqgate.core.entries import RateLimit
from mqgate.ports.rate_limits import RateLimitStore

__all__ = ["ProducerRateLimiter"]

_LENGTH = timedelta(milliseconds=100)
_MIN_DRAW_INTERVAL = 0.01


class _Slice:
    """The tokens of a producer on this gateway: left, used in this slice, and used in the slice before."""

    __slots__ = ("before", "began", "empty_until", "left", "limit", "lock", "used", "wanted")

    def __init__(self, limit: RateLimit, now: datetime) -> None:
        self.limit = limit
        self.began = now
        self.left = 0
        self.used = 0
        self.before = 0
        self.wanted = 0
        self.empty_until = now
        self.lock = asyncio.Lock()

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
            async with held.lock:
                return await self._take(name, held, count)
        finally:
            held.wanted -= count

    async def _take(self, name: str, held: _Slice, count: int) -> tuple[int, float]:
        now = self._clock()
        held.move(now)
        if held.left < count and now >= held.empty_until:
            now = await self._draw(name, held)
        allowed = min(count, held.left)
        held.left -= allowed
        held.used += allowed
        return allowed, (held.empty_until - now).total_seconds()

    async def _draw(self, name: str, held: _Slice) -> datetime:
        """Draw tokens for all waiting callers and the reserve; return the time of the response."""
        limit = held.limit
        missing = max(held.wanted, held.before - held.used) - held.left
        given, wait = await self._rates.take(name, limit, missing)
        now = self._clock()
        left = held.left + given
        # The call may have taken longer than a slice. The tokens that were just drawn must not lapse.
        held.move(now)
        held.left = left
        if given < missing:
            held.empty_until = now + timedelta(seconds=max(wait, min(_MIN_DRAW_INTERVAL, limit.burst / limit.rate)))
        return now
