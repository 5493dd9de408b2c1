"""RateLimitStore in memory, for the embedded deployment."""

from collections.abc import Callable
from datetime import datetime

from mqgate.core.entries import RateLimit
from mqgate.core.message import milliseconds
from mqgate.core.tokens import Bucket

__all__ = ["LocalRateLimits"]


class LocalRateLimits:
    """Token buckets of producers."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    async def take(self, name: str, limit: RateLimit, max_count: int) -> tuple[int, float]:
        now_ms = milliseconds(self._clock())
        bucket = self._buckets.get(name, Bucket.full(limit, now_ms)).at(limit, now_ms)
        taken = min(max_count, int(bucket.tokens))
        bucket = self._buckets[name] = bucket.take(taken)
        return taken, bucket.wait_ms(limit, 1) / 1000
