"""The Redis lease store fulfils the contracts of lease stores."""

import pytest

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.lease_store_contract import LeaseStoreContract
from mqgate.testing.message_lease_contract import MessageLeaseContract


class TestRedisLeaseStore(LeaseStoreContract):
    max_clients = 5

    @pytest.fixture
    def store(self, server: RedisClient, clock: ManualClock, prefix: str) -> RedisLeaseStore:
        return RedisLeaseStore(server, prefix=prefix, max_clients=self.max_clients, clock=clock)


class TestRedisMessageLeases(MessageLeaseContract):
    @pytest.fixture
    def store(self, server: RedisClient, clock: ManualClock, prefix: str) -> RedisLeaseStore:
        return RedisLeaseStore(server, prefix=prefix, clock=clock)
