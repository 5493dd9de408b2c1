"""Watch for registry changes of other gateways."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from eventually import until
from mqgate.adapters.postgres.database import Database
from mqgate.adapters.postgres.registry_store import PostgresRegistryStore
from mqgate.adapters.postgres.registry_watch import RegistryWatch
from mqgate.core.errors import StorageUnavailable
from mqgate.core.receipt import KeyRotationPolicy
from mqgate.ports.registry_store import AuditEntry
from mqgate.testing.clock import NOON
from mqgate.testing.samples import a_topic

OpenDatabase = Callable[..., Awaitable[Database]]
NEVER = timedelta(hours=1)
ACT = AuditEntry(at=NOON, actor="ada", action="create", subject="topic", reason=None, details="{}")
END_LISTENERS = b"""
    SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE query = 'LISTEN "' || current_schema() || '"'
"""


class Refreshes:
    """Counter of refreshes."""

    def __init__(self) -> None:
        self.count = 0
        self.fault: StorageUnavailable | None = None
        self._come = asyncio.Condition()

    async def refresh(self) -> None:
        async with self._come:
            self.count += 1
            self._come.notify_all()
        if self.fault is not None:
            raise self.fault

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(60), self._come:
            await self._come.wait_for(lambda: self.count >= count)


@pytest.fixture
def refreshes() -> Refreshes:
    return Refreshes()


@asynccontextmanager
async def watching(database: Database, refreshes: Refreshes, interval: timedelta = NEVER) -> AsyncIterator[None]:
    """Run a watch, and wait until it listens: it refreshes once at that point."""
    watch = RegistryWatch(database, refreshes.refresh, interval=interval)
    watch.start()
    try:
        await refreshes.reached(1)
        yield
    finally:
        await watch.stop()


@pytest.fixture
async def other(open_database: OpenDatabase) -> PostgresRegistryStore:
    """Return the store of another gateway."""
    return PostgresRegistryStore(await open_database())


async def test_changes_of_another_gateway_cause_a_refresh(
    database: Database, refreshes: Refreshes, other: PostgresRegistryStore
) -> None:
    """Every change must be noticed at once, without polling in between."""
    async with watching(database, refreshes):
        await other.save(a_topic(), ACT, decided_on=0)
        await refreshes.reached(2)
        await other.remove(a_topic(), ACT, decided_on=1)
        await refreshes.reached(3)
        await other.record(ACT)
        await other.load()
        await other.receipt_keys(KeyRotationPolicy())
        await refreshes.reached(4)

    assert refreshes.count == 4


async def test_a_refused_change_sends_no_notification(
    database: Database, refreshes: Refreshes, other: PostgresRegistryStore
) -> None:
    """A refresh without a change would be wasted."""
    async with watching(database, refreshes):
        with pytest.raises(Exception, match="repeat the change"):
            await other.save(a_topic(), ACT, decided_on=7)
        await other.save(a_topic(), ACT, decided_on=0)
        await refreshes.reached(2)

    assert refreshes.count == 2


async def test_changes_of_another_schema_cause_no_refresh(
    database: Database, refreshes: Refreshes, open_database: OpenDatabase, schema: str
) -> None:
    """Several deployments may share a database."""
    elsewhere = await open_database(schema=f"{schema}_b")
    try:
        async with watching(database, refreshes):
            await PostgresRegistryStore(elsewhere).save(a_topic(), ACT, decided_on=0)
            await PostgresRegistryStore(database).save(a_topic(), ACT, decided_on=0)
            await refreshes.reached(2)
    finally:
        await elsewhere.write(f'DROP SCHEMA "{schema}_b" CASCADE'.encode())

    assert refreshes.count == 2


async def test_the_watch_refreshes_and_listens_again_after_a_lost_connection(
    database: Database, refreshes: Refreshes, other: PostgresRegistryStore
) -> None:
    """Notifications are lost while the connection is down."""
    async with watching(database, refreshes):
        assert await database.read(END_LISTENERS) == [("true",)]
        await other.save(a_topic(), ACT, decided_on=0)
        # One refresh after the pause, and one when the watch listens again.
        await refreshes.reached(3)

        await other.save(a_topic(queues=9), ACT, decided_on=1)
        await refreshes.reached(4)


async def test_a_lost_notification_is_compensated_by_polling(database: Database, refreshes: Refreshes) -> None:
    """A notification may be lost without an error."""
    async with watching(database, refreshes, interval=timedelta(milliseconds=50)):
        await refreshes.reached(4)


async def test_the_watch_continues_after_a_failed_refresh(
    database: Database, refreshes: Refreshes, other: PostgresRegistryStore
) -> None:
    """The database may be busy when the notification arrives."""
    async with watching(database, refreshes):
        refreshes.fault = StorageUnavailable("busy")
        await other.save(a_topic(), ACT, decided_on=0)
        await refreshes.reached(2)

        refreshes.fault = None
        await other.save(a_topic(queues=9), ACT, decided_on=1)
        await refreshes.reached(3)


async def test_a_stopped_watch_leaves_no_connection(database: Database, refreshes: Refreshes) -> None:
    """Connections of stopped gateways would accumulate."""
    async with watching(database, refreshes):
        pass

    async def is_gone() -> bool:
        return await database.read(END_LISTENERS) == []

    await until(is_gone)


async def test_the_change_lock_applies_to_all_gateways(database: Database, other: PostgresRegistryStore) -> None:
    """A lock within one gateway would not prevent concurrent changes."""
    one = PostgresRegistryStore(database)
    async with one.change_lock():
        waiting = asyncio.create_task(_turn(other))
        await until(lambda: _has_waiting_lock(database))
        had_it_early = waiting.done()

    async with asyncio.timeout(30):
        await waiting
    assert not had_it_early


async def test_the_change_lock_of_a_crashed_gateway_is_released(
    database: Database, other: PostgresRegistryStore
) -> None:
    """A gateway that crashes during a change must not block the others."""
    async with PostgresRegistryStore(database).change_lock():
        waiting = asyncio.create_task(_turn(other))
        await until(lambda: _has_waiting_lock(database))

        await database.read(
            b"SELECT pg_terminate_backend(pid)::text FROM pg_locks WHERE locktype = 'advisory' AND granted "
            b"AND objid::bigint = hashtextextended('mqgate registry ' || current_schema(), 0) & 4294967295"
        )
        async with asyncio.timeout(30):
            await waiting


async def _turn(store: PostgresRegistryStore) -> None:
    async with store.change_lock():
        pass


async def _has_waiting_lock(database: Database) -> bool:
    rows = await database.read(
        b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
        b"AND objid::bigint = hashtextextended('mqgate registry ' || current_schema(), 0) & 4294967295"
    )
    return rows == [(1,)]
