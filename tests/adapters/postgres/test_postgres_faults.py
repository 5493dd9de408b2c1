"""Behaviour while PostgreSQL is down, does not respond, is full or refuses the gateway."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eventually import until
from mqgate.adapters.postgres.connections import Timeouts
from mqgate.adapters.postgres.database import Database, Transaction
from mqgate.core.errors import (
    InvalidValue,
    MqgateError,
    OutcomeUnknown,
    Overloaded,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)
from mqgate.stack import Stack
from wire import Wire

SECOND = timedelta(seconds=1)
QUICK = Timeouts(connect=2 * SECOND, checkout=SECOND / 2, statement=SECOND)
OpenQuick = Callable[..., Awaitable[Database]]


@pytest.fixture
async def admin(mortal: Stack) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Return a direct connection to the server."""
    connection = await psycopg.AsyncConnection.connect(mortal.postgres_url, autocommit=True)
    yield connection
    await connection.close()


@pytest.fixture
async def open_quick(mortal: Stack, schema: str) -> AsyncIterator[OpenQuick]:
    """Return a function that opens databases with short deadlines and a table of numbers."""
    opened: list[Database] = []

    async def open_quick(url: str | None = None, **options: Any) -> Database:
        database = Database(url or mortal.postgres_url, **{"schema": schema, "timeouts": QUICK, **options})
        opened.append(database)
        await database.open()
        await database.write(b"CREATE TABLE IF NOT EXISTS number (value integer PRIMARY KEY)")
        return database

    yield open_quick
    for database in opened:
        await database.close()


async def numbers(database: Database) -> list[int]:
    return [value for (value,) in await database.read(b"SELECT value FROM number ORDER BY value")]


async def test_the_store_works_again_after_a_restart_of_the_server(mortal: Stack, open_quick: OpenQuick) -> None:
    """A gateway must not need a restart, and stored data must be there."""
    database = await open_quick()
    await database.write(b"INSERT INTO number VALUES (1)")
    await asyncio.to_thread(mortal.stop, "postgres", patience=0.0)

    away = await asyncio.gather(
        database.write(b"INSERT INTO number VALUES (2)"), numbers(database), database.probe(), return_exceptions=True
    )
    await asyncio.to_thread(mortal.start, "postgres")
    found = await _patiently(lambda: numbers(database))
    await database.write(b"INSERT INTO number VALUES (3)")

    assert [type(error) for error in away] == [StorageUnavailable] * 3
    assert found == [1]
    assert await numbers(database) == [1, 3]


async def _patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Return the first result that is not an error. Every attempt waits for a connection itself."""
    for _ in range(20):
        try:
            return await ask()
        except StorageUnavailable:
            continue
    return await ask()


async def test_a_gateway_without_its_server_does_not_start(unused_port: int) -> None:
    """The error must name the reason."""
    database = Database(f"postgresql://mqgate@127.0.0.1:{unused_port}/postgres", timeouts=QUICK)

    with pytest.raises(StorageUnavailable, match=r"no connection to PostgreSQL.*refused"):
        await database.open()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_connections_closed_while_idle_cause_no_error(
    open_quick: OpenQuick, admin: psycopg.AsyncConnection[Any]
) -> None:
    """Firewalls and failovers close idle connections. This must not fail even writes that cannot be repeated."""
    database = await open_quick(min_size=3)
    await asyncio.gather(*(database.read(b"SELECT pg_sleep(0.05)") for _ in range(3)))
    await admin.execute(
        b"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'mqgate'"
    )

    await asyncio.gather(*(database.write(b"INSERT INTO number VALUES (%(n)s)", {"n": n}) for n in range(6)))

    assert await numbers(database) == list(range(6))


async def test_a_write_whose_result_is_lost_is_unknown(mortal: Stack, open_quick: OpenQuick) -> None:
    """The write was executed, so reporting a failure would be wrong."""
    async with Wire(mortal.postgres_url).open() as wire:
        database = await open_quick(wire.url)
        wire.mute()

        with pytest.raises(OutcomeUnknown, match="outcome of a write is unknown"):
            await database.write(b"INSERT INTO number VALUES (1)")

        wire.unmute()
        assert await numbers(database) == [1]


async def test_a_repeatable_write_is_repeated_after_a_lost_connection(mortal: Stack, open_quick: OpenQuick) -> None:
    """The caller must not see an error."""
    async with Wire(mortal.postgres_url).open() as wire:
        database = await open_quick(wire.url)
        wire.mute()
        writing = asyncio.create_task(
            database.write(b"INSERT INTO number VALUES (1) ON CONFLICT DO NOTHING", is_repeatable=True)
        )
        await until(lambda: _is_there(mortal, database))

        wire.cut()
        wire.unmute()
        await writing

        assert await numbers(database) == [1]


async def _is_there(mortal: Stack, database: Database) -> bool:
    async with await psycopg.AsyncConnection.connect(mortal.postgres_url) as connection:
        found = await connection.execute(f'TABLE "{database.schema}".number'.encode())
        return await found.fetchone() == (1,)


async def test_a_server_that_does_not_respond_is_reported_at_the_deadline(mortal: Stack, open_quick: OpenQuick) -> None:
    """The server keeps the connection open but does not respond, not even to a cancel request."""
    async with Wire(mortal.postgres_url).open() as wire:
        database = await open_quick(wire.url)
        wire.mute()

        async with asyncio.timeout(10):
            with pytest.raises(StorageUnavailable):
                await numbers(database)

        wire.unmute()
        assert await numbers(database) == []


async def test_a_transaction_lost_before_its_commit_runs_again(mortal: Stack, open_quick: OpenQuick) -> None:
    """Nothing was committed, so the outcome is not unknown."""
    async with Wire(mortal.postgres_url).open() as wire:
        database = await open_quick(wire.url)
        tries = 0

        async def job(transaction: Transaction) -> None:
            nonlocal tries
            tries += 1
            await transaction.rows(b"INSERT INTO number VALUES (1)")
            if tries == 1:
                wire.cut()
            await transaction.rows(b"INSERT INTO number VALUES (2)")

        await database.transact(job)

        assert tries == 2
        assert await numbers(database) == [1, 2]


async def test_a_cancelled_caller_does_not_cancel_its_write(open_quick: OpenQuick) -> None:
    """When a client disconnects during a write, the write completes and its connection is used again."""
    database = await open_quick(max_size=1)
    writing = asyncio.create_task(database.write(b"INSERT INTO number SELECT 1 FROM pg_sleep(0.2)"))
    await asyncio.sleep(0)

    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert await numbers(database) == [1]
    assert database._pool.get_stats()["connections_num"] == 1


async def test_closing_waits_for_running_operations(open_quick: OpenQuick) -> None:
    """A stop must not lose a write. Later calls are refused, and closing twice is allowed."""
    database, other = await open_quick(), await open_quick()
    writing = asyncio.create_task(database.write(b"INSERT INTO number SELECT 1 FROM pg_sleep(0.2)"))
    await asyncio.sleep(0)

    await database.close()
    await database.close()

    await writing
    assert await numbers(other) == [1]
    with pytest.raises(StorageUnavailable, match="stopping"):
        await numbers(database)


async def test_an_exhausted_pool_is_reported_at_the_deadline(open_quick: OpenQuick) -> None:
    """A caller must not wait forever, and later calls must work again."""
    database = await open_quick(max_size=1)
    held, free = asyncio.Event(), asyncio.Event()

    async def hold(transaction: Transaction) -> None:
        await transaction.rows(b"SELECT 1")
        held.set()
        await free.wait()

    holding = asyncio.create_task(database.transact(hold))
    await held.wait()

    with pytest.raises(Overloaded, match="max_connections"):
        await numbers(database)

    free.set()
    await holding
    assert await numbers(database) == []


async def test_a_statement_over_its_timeout_is_rolled_back(open_quick: OpenQuick) -> None:
    """A slow statement must neither block a caller nor leave partial changes."""
    database = await open_quick()

    with pytest.raises(StorageUnavailable, match="timeout"):
        await database.write(b"INSERT INTO number SELECT 1 FROM pg_sleep(30)")

    assert await numbers(database) == []


async def test_a_deadlock_is_retried(open_quick: OpenQuick) -> None:
    """The server aborts one of the two transactions; its caller must not see an error."""
    # PostgreSQL checks for deadlocks after one second.
    database = await open_quick(timeouts=Timeouts(statement=5 * SECOND))
    await database.write(b"INSERT INTO number VALUES (1), (2)")
    meeting = [asyncio.Event(), asyncio.Event()]
    tries = 0

    async def job(first: int, second: int, transaction: Transaction) -> None:
        nonlocal tries
        tries += 1
        await transaction.rows(b"SELECT FROM number WHERE value = %(value)s FOR UPDATE", {"value": first})
        meeting[first - 1].set()
        await meeting[second - 1].wait()
        await transaction.rows(b"SELECT FROM number WHERE value = %(value)s FOR UPDATE", {"value": second})

    await asyncio.gather(
        database.transact(lambda transaction: job(1, 2, transaction)),
        database.transact(lambda transaction: job(2, 1, transaction)),
    )

    assert tries >= 3, "there was a deadlock; they may meet more than once"


async def test_a_serialization_failure_is_retried(open_quick: OpenQuick) -> None:
    """An operator may have configured another isolation level."""
    database = await open_quick()
    await database.write(b"INSERT INTO number VALUES (1)")
    tries = 0

    async def job(transaction: Transaction) -> None:
        nonlocal tries
        tries += 1
        await transaction.rows(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await transaction.rows(b"SELECT FROM number")
        if tries == 1:
            await database.write(b"UPDATE number SET value = value + 10")
        await transaction.rows(b"UPDATE number SET value = value + 100")

    await database.transact(job)

    assert tries == 2
    assert await numbers(database) == [111]


async def test_a_repeated_conflict_is_reported_after_five_attempts(open_quick: OpenQuick) -> None:
    """The number of retries must have a limit."""
    database = await open_quick()

    with pytest.raises(StorageUnavailable):
        await database.write(b"DO $$ BEGIN RAISE serialization_failure; END $$")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ("disk_full", StorageFull),
        ("out_of_memory", StorageUnavailable),
        ("io_error", StorageUnavailable),
        ("insufficient_privilege", StorageRefused),
        ("undefined_table", StorageRefused),
        ("string_data_right_truncation", InvalidValue),
    ],
)
async def test_every_server_error_has_one_error_class(
    open_quick: OpenQuick, raised: str, expected: type[MqgateError]
) -> None:
    """The server itself raises the errors. A failed statement must leave no changes."""
    database = await open_quick()

    with pytest.raises(expected):
        await database.write(b"DO $$ BEGIN INSERT INTO number VALUES (1); RAISE " + raised.encode() + b"; END $$")

    assert await numbers(database) == []


async def test_a_wrong_password_is_refused(mortal: Stack, admin: psycopg.AsyncConnection[Any], schema: str) -> None:
    """A retry cannot help. The error must not show the password."""
    hba = Path(str(mortal.part("postgres").command[2])) / "pg_hba.conf"
    hba.write_text(f"host all {schema} 127.0.0.1/32 scram-sha-256\n{hba.read_text('utf-8')}", "utf-8")
    await admin.execute(f"CREATE ROLE {schema} LOGIN PASSWORD 'right'".encode())
    await admin.execute(b"SELECT pg_reload_conf()")
    address = mortal.postgres_url.partition("@")[2]

    with pytest.raises(StorageRefused, match="password authentication failed") as refused:
        await Database(f"postgresql://{schema}:wrong@{address}", timeouts=QUICK).open()

    assert "wrong" not in refused.value.detail


async def test_a_missing_database_is_refused(mortal: Stack) -> None:
    """A retry cannot help: an operator must create the database."""
    with pytest.raises(StorageRefused, match="does not exist"):
        await Database(f"{mortal.postgres_url}_nowhere", timeouts=QUICK).open()


async def test_a_server_with_too_many_connections_is_unavailable(
    mortal: Stack, admin: psycopg.AsyncConnection[Any], schema: str
) -> None:
    """Other clients use all connections. The error names the two settings that matter."""
    await admin.execute(f"CREATE ROLE {schema} LOGIN SUPERUSER CONNECTION LIMIT 0".encode())
    await admin.execute(f"ALTER ROLE {schema} NOSUPERUSER".encode())
    address = mortal.postgres_url.partition("@")[2]

    with pytest.raises(StorageUnavailable, match="too many connections"):
        await Database(f"postgresql://{schema}@{address}", timeouts=QUICK).open()


async def test_a_read_only_server_is_not_used(mortal: Stack, admin: psycopg.AsyncConnection[Any], schema: str) -> None:
    """A standby or demoted primary cannot serve a gateway, which waits for the primary."""
    await admin.execute(f"CREATE DATABASE {schema}".encode())
    await admin.execute(f"ALTER DATABASE {schema} SET default_transaction_read_only = on".encode())
    url = f"{mortal.postgres_url.rpartition('/')[0]}/{schema}"

    with pytest.raises(StorageUnavailable, match="read-only"):
        await Database(url, timeouts=QUICK).open()


async def test_a_connection_that_became_read_only_is_closed(
    mortal: Stack, open_quick: OpenQuick, admin: psycopg.AsyncConnection[Any], schema: str
) -> None:
    """After a failover the address leads to another server: the next connection finds the primary."""
    database = await open_quick(max_size=1)
    await database.write(b"SET default_transaction_read_only = on")

    with pytest.raises(StorageUnavailable, match="read-only"):
        await database.write(b"INSERT INTO number VALUES (1)")
    await database.write(b"INSERT INTO number VALUES (2)")

    assert await numbers(database) == [2]


async def test_the_probe_fails_if_a_write_would(open_quick: OpenQuick) -> None:
    """A read-only server is not ready."""
    database = await open_quick(max_size=1)
    await database.probe()
    await database.write(b"SET default_transaction_read_only = on")

    with pytest.raises(StorageUnavailable, match="read-only"):
        await database.probe()
