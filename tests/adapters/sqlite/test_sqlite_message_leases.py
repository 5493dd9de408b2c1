"""The embedded engine's lease store in message mode."""

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.testing.message_lease_contract import MessageLeaseContract


class TestSqliteMessageLeases(MessageLeaseContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteLeaseStore:
        return SqliteLeaseStore(engine)
