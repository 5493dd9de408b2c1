"""Producers' rates on Redis: the same promises as within one process."""

import pytest

from mqgate.adapters.redis.rates import RedisRates
from mqgate.adapters.redis.server import Server
from mqgate.testing.clock import ManualClock
from mqgate.testing.rates_contract import RatesContract


class TestRedisRates(RatesContract):
    @pytest.fixture
    def rates(self, server: Server, clock: ManualClock, prefix: str) -> RedisRates:
        return RedisRates(server, prefix=prefix, clock=clock)
