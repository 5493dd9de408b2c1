"""The embedded engine's lease store."""

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.testing.lease_store_contract import LeaseStoreContract


class TestSqliteLeaseStore(LeaseStoreContract):
    most_clients = 5

    @pytest.fixture
    def store(self, engine: Engine) -> SqliteLeaseStore:
        return SqliteLeaseStore(engine, most_clients=self.most_clients)
