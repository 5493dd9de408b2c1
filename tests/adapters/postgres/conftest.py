"""Fixtures: one schema per test, and databases of gateways on it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import psycopg
import pytest

from mqgate.adapters.postgres.database import Database
from mqgate.adapters.postgres.presence import Presence
from mqgate.stack import Stack
from mqgate.testing.clock import ManualClock

OpenDatabase = Callable[..., Awaitable[Database]]


@pytest.fixture
def schema() -> str:
    return f"test_{uuid4().hex}"


@pytest.fixture
async def open_database(postgres: Stack, schema: str, clock: ManualClock) -> AsyncIterator[OpenDatabase]:
    """Return a function that opens the schema of the test. Every call is a gateway with its own pool."""
    opened: list[Database] = []

    async def open_database(**options: object) -> Database:
        database = Database(postgres.postgres_url, **{"schema": schema, "now": lambda: clock.now, **options})
        opened.append(database)
        await database.open()
        return database

    yield open_database
    for database in opened:
        await database.close()
    async with await psycopg.AsyncConnection.connect(postgres.postgres_url, autocommit=True) as connection:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


@pytest.fixture
async def database(open_database: OpenDatabase) -> Database:
    return await open_database()


OpenPresence = Callable[[Database], Awaitable[Presence]]


@pytest.fixture
def open_presence() -> OpenPresence:
    async def open_presence(database: Database) -> Presence:
        presence = Presence(database)
        await presence.run_once()
        return presence

    return open_presence


@pytest.fixture
async def presence(database: Database, open_presence: OpenPresence) -> Presence:
    return await open_presence(database)


@pytest.fixture
def restart(
    database: Database, presence: Presence, open_database: OpenDatabase, open_presence: OpenPresence
) -> Callable[[], Awaitable[tuple[Database, Presence]]]:
    """Return a function that stops the gateway and returns database and presence of the next one."""

    async def restart() -> tuple[Database, Presence]:
        await presence.stop()
        await database.close()
        again = await open_database()
        return again, await open_presence(again)

    return restart
