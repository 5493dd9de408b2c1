"""The lease store of the embedded engine."""

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.lease_store_contract import LeaseStoreContract
from mqgate.testing.leasing import ask, opened
from mqgate.testing.samples import a_group, queues


class TestSqliteLeaseStore(LeaseStoreContract):
    max_clients = 5

    @pytest.fixture
    def store(self, engine: Engine) -> SqliteLeaseStore:
        return SqliteLeaseStore(engine, max_clients=self.max_clients)

    async def test_the_number_of_stored_client_names_is_limited(
        self, store: SqliteLeaseStore, engine: Engine, clock: ManualClock
    ) -> None:
        """A caller may use a new clientId for every poll. Each group keeps the newest ones."""
        groups = [a_group(name="workers"), a_group(name="others")]
        for group in groups:
            await opened(store, group, queues(9))
        for number in range(20 * self.max_clients):
            await ask(store, groups[number % 2], polled_by=f"c{number}")
            clock.advance(0.001)

        ((kept,),) = await engine.read(lambda view: view.all("SELECT count(*) FROM lease_client"))
        listed = await store.clients("workers")

        assert kept <= 2 * len(groups) * self.max_clients
        assert [client.name for client in listed] == ["c98", "c96", "c94", "c92", "c90"]
