"""RateLimitStore on Redis: one token bucket per producer, shared by all gateways."""

from collections.abc import Callable

import msgspec

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.keys import rate_limit_key
from mqgate.adapters.redis.scripts import script
from mqgate.core.entries import RateLimit

__all__ = ["RedisRateLimits"]


class RedisRateLimits:
    """Token buckets of producers. `clock` replaces the Redis clock in tests."""

    def __init__(self, redis: RedisClient, *, prefix: str = "mqgate", clock: Callable[[], int] | None = None) -> None:
        self._redis = redis
        self._prefix = prefix
        self._clock = clock

    async def take(self, name: str, limit: RateLimit, max_count: int) -> tuple[int, float]:
        fields: dict[str, float] = {"rate": limit.rate, "burst": limit.burst, "max_count": max_count}
        if self._clock is not None:
            fields["now"] = self._clock()
        arguments = msgspec.msgpack.encode(fields)
        # If the command is sent twice, both may take tokens: the producer gets fewer than its limit, never more.
        reply = await self._redis.evaluate(
            script("take"), (rate_limit_key(self._prefix, name),), lambda *_: (arguments,)
        )
        taken, wait_ms = msgspec.msgpack.decode(reply)
        return int(taken), wait_ms / 1000
