"""Schema migrations with several and with older gateways."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import psycopg
import pytest

from mqgate.adapters.postgres.database import Database
from mqgate.adapters.postgres.presence import Presence
from mqgate.adapters.postgres.registry_store import PostgresRegistryStore
from mqgate.adapters.postgres.timer_store import PostgresTimerStore
from mqgate.core.errors import MqgateError, StorageRefused
from mqgate.core.message import Draft
from mqgate.core.receipt import KeyRotationPolicy
from mqgate.ports.timer_store import Timer
from mqgate.sql_files import SchemaFile, schema_files
from mqgate.stack import Stack
from mqgate.testing.clock import NOON

OpenDatabase = Callable[..., Awaitable[Database]]
NEXT = SchemaFile("9999_next.sql", "ALTER TABLE timer ADD COLUMN colour text NOT NULL DEFAULT 'blue'")
# The schema version of this release.
OWN = len(schema_files("mqgate.adapters.postgres"))


async def _open_all(*databases: Database, scripts: list[SchemaFile] | None = None) -> list[BaseException | None]:
    outcomes = await asyncio.gather(*(database.open(scripts) for database in databases), return_exceptions=True)
    for database in databases:
        await database.close()
    return cast("list[BaseException | None]", outcomes)


async def test_concurrent_starts_create_the_tables_once(
    postgres: Stack, schema: str, open_database: OpenDatabase
) -> None:
    """The other gateways must wait for the first one."""
    several = [Database(postgres.postgres_url, schema=schema, max_size=1) for _ in range(8)]

    outcomes = await _open_all(*several)

    assert outcomes == [None] * 8
    assert await PostgresRegistryStore(await open_database()).version() == 0


async def test_tables_of_a_newer_release_are_refused(postgres: Stack, schema: str, open_database: OpenDatabase) -> None:
    """An old release must not write to a schema that it does not support. The error names the remedy."""
    newer = Database(postgres.postgres_url, schema=schema)
    await _open_all(newer, scripts=[*schema_files("mqgate.adapters.postgres"), NEXT])

    with pytest.raises(StorageRefused, match=f"schema version {OWN + 1}, this mqgate supports {OWN}: upgrade"):
        await open_database()


async def test_an_older_gateway_works_during_a_migration(
    postgres: Stack, schema: str, open_database: OpenDatabase
) -> None:
    """Both releases serve at the same time during a rolling upgrade."""
    old = await open_database()
    presence = Presence(old)
    await presence.run_once()
    timers = PostgresTimerStore(old, presence)
    await timers.add([Timer("orders", Draft("before", b"x"), NOON)])
    # Prepared statements must survive the migration, too.
    for _ in range(10):
        await timers.get("before")

    await _open_all(
        Database(postgres.postgres_url, schema=schema), scripts=[*schema_files("mqgate.adapters.postgres"), NEXT]
    )
    await timers.add([Timer("orders", Draft("after", b"x"), NOON)])
    due, _ = await timers.claim(10)

    assert [timer.draft.id for timer in due] == ["before", "after"]
    assert await old.read(b"SELECT DISTINCT colour FROM timer") == [("blue",)]


async def test_a_failed_migration_is_rolled_back(postgres: Stack, schema: str, open_database: OpenDatabase) -> None:
    """The next start must find the previous schema version."""
    await open_database()
    broken = SchemaFile("9999_broken.sql", "SELECT 1 / 0")

    (outcome,) = await _open_all(
        Database(postgres.postgres_url, schema=schema),
        scripts=[*schema_files("mqgate.adapters.postgres"), NEXT, broken],
    )

    assert isinstance(outcome, MqgateError)
    again = await open_database()
    assert await again.read(b"SELECT number FROM layout") == [(OWN,)]
    assert await again.read(
        b"SELECT count(*) FROM pg_attribute WHERE attname = 'colour' AND attrelid = 'timer'::regclass"
    ) == [(0,)]


async def test_a_migration_is_repeated_after_a_lost_connection(postgres: Stack, schema: str) -> None:
    """PostgreSQL and the gateways may be restarted at the same time."""
    tries = f"public.tries_{schema}"
    # A sequence keeps its value if the transaction is rolled back.
    once = f"SELECT pg_terminate_backend(pg_backend_pid()) WHERE nextval('{tries}') = 1"
    with psycopg.connect(postgres.postgres_url, autocommit=True) as operator:
        operator.execute(f"CREATE SEQUENCE {tries}".encode())

        (outcome,) = await _open_all(
            Database(postgres.postgres_url, schema=schema),
            scripts=[*schema_files("mqgate.adapters.postgres"), SchemaFile("9999_once.sql", once)],
        )
        found = operator.execute(f"SELECT last_value FROM {tries}".encode()).fetchone()  # noqa: S608 - same
        operator.execute(f"DROP SEQUENCE {tries}".encode())

    assert (outcome, found) == (None, (2,))


async def test_a_user_without_the_right_to_create_can_use_the_tables(
    postgres: Stack, schema: str, database: Database
) -> None:
    """The user of a gateway need not own the database."""
    user = f"user_{schema}"
    for statement in (
        f"CREATE ROLE {user} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {user}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}",
    ):
        await database.write(statement.encode())
    url = postgres.postgres_url.replace("mqgate@", f"{user}@")
    humble = Database(url, schema=schema)
    await humble.open()

    await PostgresRegistryStore(humble).receipt_keys(KeyRotationPolicy())
    (outcome,) = await _open_all(Database(url, schema=f"{schema}_2"))

    await humble.close()
    await database.write(f"DROP OWNED BY {user}".encode())
    await database.write(f"DROP ROLE {user}".encode())
    assert isinstance(outcome, StorageRefused)


async def test_a_database_without_utf8_is_refused(postgres: Stack, schema: str) -> None:
    """Otherwise the first message with a special character would fail."""
    async with await psycopg.AsyncConnection.connect(postgres.postgres_url, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {schema} ENCODING 'SQL_ASCII' TEMPLATE template0".encode())
        (outcome,) = await _open_all(Database(f"{postgres.postgres_url.rpartition('/')[0]}/{schema}"))
        await connection.execute(f"DROP DATABASE {schema}".encode())

    assert isinstance(outcome, StorageRefused)
    assert "UTF8" in outcome.detail


async def test_an_invalid_url_is_refused_without_being_shown() -> None:
    """The URL may contain a password."""
    with pytest.raises(StorageRefused) as refused:
        Database("postgresql://me:secret@host/database?colour=blue")

    assert "secret" not in refused.value.detail
