"""Producers' rates on Redis: the same promises as within one process."""

import pytest

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.rate_limits import RedisRateLimits
from mqgate.testing.clock import ManualClock
from mqgate.testing.rate_limits_contract import RateLimitsContract


class TestRedisRates(RateLimitsContract):
    @pytest.fixture
    def rates(self, server: RedisClient, clock: ManualClock, prefix: str) -> RedisRateLimits:
        return RedisRateLimits(server, prefix=prefix, clock=clock)
