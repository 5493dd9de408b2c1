"""The Redis rate limit store fulfils the contract of rate limit stores."""

import pytest

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.rate_limits import RedisRateLimits
from mqgate.testing.clock import ManualClock
from mqgate.testing.rate_limits_contract import RateLimitsContract


class TestRedisRateLimits(RateLimitsContract):
    @pytest.fixture
    def rates(self, server: RedisClient, clock: ManualClock, prefix: str) -> RedisRateLimits:
        return RedisRateLimits(server, prefix=prefix, clock=clock)
