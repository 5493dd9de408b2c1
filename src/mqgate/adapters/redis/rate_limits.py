"""Producers' rates in Redis: one bucket for all gateways."""

from collections.abc import Callable

import msgspec

from mqgate.adapters.redis.scripts import script
from mqgate.adapters.redis.server import Server
from mqgate.core.entries import RateLimit

__all__ = ["RedisRateLimits"]


class RedisRateLimits:
    """`clock` stands in for Redis' in tests."""

    def __init__(self, server: Server, *, prefix: str = "mqgate", clock: Callable[[], int] | None = None) -> None:
        self._server = server
        self._prefix = prefix
        self._clock = clock

    async def take(self, name: str, limit: RateLimit, max_count: int) -> tuple[int, float]:
        fields: dict[str, float] = {"rate": limit.rate, "burst": limit.burst, "most": max_count}
        if self._clock is not None:
            fields["now"] = self._clock()
        request = msgspec.msgpack.encode(fields)
        # Of a repeat the first may have taken some as well: a little too few, never too many.
        reply = await self._server.evaluate(script("take"), f"{self._prefix}:rate:{{{name}}}", lambda *_: (request,))
        taken, wait_ms = msgspec.msgpack.decode(reply)
        return int(taken), wait_ms / 1000
