"""Hearing of what another gateway changed."""

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


class Looks:
    """Counts looks; `next` waits for one that is still to come."""

    def __init__(self) -> None:
        self.count = 0
        self.fault: StorageUnavailable | None = None
        self._come = asyncio.Condition()

    async def look(self) -> None:
        async with self._come:
            self.count += 1
            self._come.notify_all()
        if self.fault is not None:
            raise self.fault

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(60), self._come:
            await self._come.wait_for(lambda: self.count >= count)


@pytest.fixture
def looks() -> Looks:
    return Looks()


@asynccontextmanager
async def watching(database: Database, looks: Looks, interval: timedelta = NEVER) -> AsyncIterator[None]:
    """A watch that has begun to listen: it looks as soon as it does."""
    watch = RegistryWatch(database, looks.look, interval=interval)
    watch.start()
    try:
        await looks.reached(1)
        yield
    finally:
        await watch.stop()


@pytest.fixture
async def other(open_database: OpenDatabase) -> PostgresRegistryStore:
    """Another gateway's end."""
    return PostgresRegistryStore(await open_database())


async def test_changes_by_another_gateway_are_heard_without_asking(
    database: Database, looks: Looks, other: PostgresRegistryStore
) -> None:
    """Each of them, one after the other; and while nothing happens nothing is asked."""
    async with watching(database, looks):
        await other.save(a_topic(), ACT, decided_on=0)
        await looks.reached(2)
        await other.remove(a_topic(), ACT, decided_on=1)
        await looks.reached(3)
        await other.record(ACT)
        await other.load()
        await other.receipt_keys(KeyRotationPolicy())
        await looks.reached(4)

    assert looks.count == 4


async def test_a_refused_change_is_not_told(database: Database, looks: Looks, other: PostgresRegistryStore) -> None:
    """Nothing changed."""
    async with watching(database, looks):
        with pytest.raises(Exception, match="repeat the change"):
            await other.save(a_topic(), ACT, decided_on=7)
        await other.save(a_topic(), ACT, decided_on=0)
        await looks.reached(2)

    assert looks.count == 2


async def test_another_schemas_changes_are_none_of_ours(
    database: Database, looks: Looks, open_database: OpenDatabase, schema: str
) -> None:
    """Several installations may share a database."""
    elsewhere = await open_database(schema=f"{schema}_b")
    try:
        async with watching(database, looks):
            await PostgresRegistryStore(elsewhere).save(a_topic(), ACT, decided_on=0)
            await PostgresRegistryStore(database).save(a_topic(), ACT, decided_on=0)
            await looks.reached(2)
    finally:
        await elsewhere.write(f'DROP SCHEMA "{schema}_b" CASCADE'.encode())

    assert looks.count == 2


async def test_after_a_lost_connection_it_looks_and_listens_again(
    database: Database, looks: Looks, other: PostgresRegistryStore
) -> None:
    """What was told while nobody listened is found by looking."""
    async with watching(database, looks):
        assert await database.read(END_LISTENERS) == [("true",)]
        await other.save(a_topic(), ACT, decided_on=0)
        # IdempotentPublisher when the pause is over, once when it listens again.
        await looks.reached(3)

        await other.save(a_topic(queues=9), ACT, decided_on=1)
        await looks.reached(4)


async def test_what_nobody_told_is_found_in_time(database: Database, looks: Looks) -> None:
    """A notice may be lost without a sign: it looks now and then in any case."""
    async with watching(database, looks, interval=timedelta(milliseconds=50)):
        await looks.reached(4)


async def test_a_look_that_fails_is_not_the_last(
    database: Database, looks: Looks, other: PostgresRegistryStore
) -> None:
    """The database may be busy at the moment that it is told."""
    async with watching(database, looks):
        looks.fault = StorageUnavailable("busy")
        await other.save(a_topic(), ACT, decided_on=0)
        await looks.reached(2)

        looks.fault = None
        await other.save(a_topic(queues=9), ACT, decided_on=1)
        await looks.reached(3)


async def test_a_watch_that_is_stopped_leaves_no_connection(database: Database, looks: Looks) -> None:
    """Gateways come and go."""
    async with watching(database, looks):
        pass

    async def is_gone() -> bool:
        return await database.read(END_LISTENERS) == []

    await until(is_gone)


async def test_turns_are_taken_over_all_gateways(database: Database, other: PostgresRegistryStore) -> None:
    """Not only within each."""
    one = PostgresRegistryStore(database)
    async with one.change_lock():
        waiting = asyncio.create_task(_turn(other))
        await until(lambda: _is_somebody_waiting(database))
        had_it_early = waiting.done()

    async with asyncio.timeout(30):
        await waiting
    assert not had_it_early


async def test_the_turn_of_a_gateway_that_is_gone_is_the_next_ones(
    database: Database, other: PostgresRegistryStore
) -> None:
    """A gateway killed in the middle of a change keeps nobody from theirs."""
    async with PostgresRegistryStore(database).change_lock():
        waiting = asyncio.create_task(_turn(other))
        await until(lambda: _is_somebody_waiting(database))

        await database.read(
            b"SELECT pg_terminate_backend(pid)::text FROM pg_locks WHERE locktype = 'advisory' AND granted "
            b"AND objid::bigint = hashtextextended('mqgate registry ' || current_schema(), 0) & 4294967295"
        )
        async with asyncio.timeout(30):
            await waiting


async def _turn(store: PostgresRegistryStore) -> None:
    async with store.change_lock():
        pass


async def _is_somebody_waiting(database: Database) -> bool:
    rows = await database.read(
        b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
        b"AND objid::bigint = hashtextextended('mqgate registry ' || current_schema(), 0) & 4294967295"
    )
    return rows == [(1,)]
