"""Access to PostgreSQL: a pool, named statements, deadlines, retries and translated errors.

An operation is one statement wherever possible: one transaction, one round trip, and a gateway that crashes leaves no
transaction open. An operation that was started completes or fails by its deadline even if its caller is cancelled, so
a disconnected client neither breaks nor blocks a connection. `faults` lists which errors are retried here.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import psycopg

from mqgate.adapters.postgres import faults, migrations
from mqgate.adapters.postgres.connections import (
    Connection,
    Timeouts,
    abort,
    connect_outside_pool,
    is_alive,
    open_pool,
)
from mqgate.core.errors import MqgateError, StorageUnavailable
from mqgate.sql_files import SchemaFile, schema_files, statements

__all__ = ["Database", "Transaction", "queries"]

_T = TypeVar("_T")
_MAX_ATTEMPTS = 5
_PAUSE = 0.01
_NO_VALUES: Mapping[str, Any] = {}
# A subquery: PostgreSQL reads the clock once per statement, and can use an index for the comparison.
_NOW = "(SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))"
# Seen within the lease. After the clock was set back, seen_at may be slightly later than now.
_LIVE = f"SELECT owner FROM gateway WHERE seen_at > {_NOW} - lease AND seen_at < {_NOW} + lease"  # noqa: S608 - constants


def queries(name: str, columns: str = "") -> dict[str, bytes]:
    """Return the statements of queries/<name>.sql.

    {now} becomes the clock of the store, {live} the owners that are alive, {columns} the given columns.
    """
    found = statements("mqgate.adapters.postgres", name, {"{live}": _LIVE, "{now}": _NOW, "{columns}": columns})
    return {name: sql.encode() for name, sql in found.items()}


class Transaction:
    """Statements of one transaction."""

    def __init__(self, connection: Connection, now: datetime | None) -> None:
        self._connection = connection
        self._now = now

    async def rows(self, sql: bytes, values: Mapping[str, Any] = _NO_VALUES) -> list[tuple[Any, ...]]:
        cursor = await self._connection.execute(sql, {**values, "now": self._now}, binary=True)
        return await cursor.fetchall() if cursor.description else []


_Work = Callable[[Connection, Callable[[], None]], Awaitable[_T]]


class Database:
    def __init__(
        self,
        url: str,
        *,
        schema: str = "mqgate",
        min_size: int = 1,
        max_size: int = 8,
        timeouts: Timeouts | None = None,
        now: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        """Create a closed database. `now` replaces the clock of the server in tests."""
        self._url = url
        self.schema = schema
        self._timeouts = timeouts or Timeouts()
        self._now = now
        self._connect_error: psycopg.Error | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pool = open_pool(
            url,
            schema=schema,
            min_size=min_size,
            max_size=max_size,
            timeouts=self._timeouts,
            attempted=self._remember_attempt,
        )

    async def open(self, scripts: Sequence[SchemaFile] | None = None) -> None:
        """Connect and migrate the tables. On an error, close and raise it."""
        await self._pool.open()
        wanted = schema_files("mqgate.adapters.postgres") if scripts is None else scripts
        end = asyncio.get_running_loop().time() + self._timeouts.connect.total_seconds() + 1
        try:
            while not await self._is_migrated(wanted, end):  # noqa: ASYNC110 - every check is a query
                await asyncio.sleep(_PAUSE)
        except BaseException:
            await self.close()
            raise

    async def _is_migrated(self, wanted: Sequence[SchemaFile], end: float) -> bool:
        """Migrate. Return False if the connection was lost and there is time to try again."""
        loop = asyncio.get_running_loop()
        try:
            connection = await self._checkout(end - loop.time())
            try:
                await migrations.migrate(connection, self.schema, wanted)
            finally:
                await self._pool.putconn(connection)
        except psycopg.Error as error:
            if faults.is_lost(error) and loop.time() < end:
                return False
            raise faults.translated(error, connect_error=self._connect_error, is_unknown=False) from error
        return True

    async def close(self) -> None:
        """Wait for running operations, then close the pool. Safe to call twice."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._pool.close()

    async def read(self, sql: bytes, values: Mapping[str, Any] = _NO_VALUES) -> list[tuple[Any, ...]]:
        """Run one statement that changes nothing and return its rows."""
        return await self.write(sql, values, is_repeatable=True)

    async def write(
        self, sql: bytes, values: Mapping[str, Any] = _NO_VALUES, *, is_repeatable: bool = False
    ) -> list[tuple[Any, ...]]:
        """Run and commit one statement and return its rows.

        A repeatable statement has the same effect if it runs twice, so it is repeated if its result is lost.
        """

        async def work(connection: Connection, sent: Callable[[], None]) -> list[tuple[Any, ...]]:
            sent()
            return await Transaction(connection, self._now()).rows(sql, values)

        return await self._shielded(self._repeat(work, is_repeatable=is_repeatable))

    async def transact(self, job: Callable[[Transaction], Awaitable[_T]]) -> _T:
        """Run several statements in one transaction. The job runs again after a conflict."""

        async def work(connection: Connection, sent: Callable[[], None]) -> _T:
            async with connection.transaction():
                result = await job(Transaction(connection, self._now()))
                # If the connection is lost before the commit is sent, nothing was done.
                sent()
            return result

        return await self._shielded(self._repeat(work, is_repeatable=False))

    @contextlib.asynccontextmanager
    async def outside_pool(self) -> AsyncIterator[Connection]:
        """Open a connection outside the pool, for long use. Its errors are translated."""
        try:
            async with await connect_outside_pool(self._url, self._timeouts) as connection:
                await connection.execute(b"SELECT set_config('search_path', %s, false)", (f'"{self.schema}"',))
                yield connection
        except psycopg.Error as error:
            raise faults.translated(error, connect_error=None, is_unknown=False) from error

    async def probe(self) -> None:
        """Raise if a write would fail."""
        rows = await self.read(b"SELECT current_setting('transaction_read_only')")
        if rows != [("off",)]:
            raise StorageUnavailable("PostgreSQL is read-only", retry_after=1)

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task that close() waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    async def _shielded(self, work: Coroutine[Any, Any, _T]) -> _T:
        return await asyncio.shield(self.spawn(work))

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Retrieve the exception: the caller may have been cancelled.
            task.exception()

    async def _repeat(self, work: _Work[_T], *, is_repeatable: bool) -> _T:
        loop = asyncio.get_running_loop()
        end = loop.time() + (self._timeouts.checkout + self._timeouts.statement).total_seconds()
        attempt = 0
        while True:
            attempt += 1
            was_sent = False

            def sent() -> None:
                nonlocal was_sent
                was_sent = True

            try:
                return await self._once(work, sent, end)
            except MqgateError:
                raise
            except psycopg.Error as error:
                is_unknown = was_sent and not is_repeatable
                is_retryable = faults.is_conflict(error) or (faults.is_lost(error) and not is_unknown)
                if not is_retryable or attempt == _MAX_ATTEMPTS or loop.time() >= end:
                    raise faults.translated(error, connect_error=self._connect_error, is_unknown=is_unknown) from error
            await asyncio.sleep(random.uniform(0, _PAUSE * 2**attempt))  # noqa: S311 - jitter

    async def _once(self, work: _Work[_T], sent: Callable[[], None], end: float) -> _T:
        loop = asyncio.get_running_loop()
        connection = await self._checkout(min(self._timeouts.checkout.total_seconds(), end - loop.time()))
        deadline = loop.call_at(end, abort, connection)
        try:
            return await work(connection, sent)
        except psycopg.Error as error:
            if faults.is_read_only(error):
                # The server is no longer the primary: the next connection selects the new one.
                await connection.close()
            raise
        finally:
            deadline.cancel()
            await self._pool.putconn(connection)

    async def _checkout(self, timeout: float) -> Connection:  # noqa: ASYNC109 - the pool takes it as such
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while True:
            connection = await self._pool.getconn(timeout=end - loop.time())
            if is_alive(connection):
                return connection
            # The server was away, so the other idle connections are dead too.
            await connection.close()
            await self._pool.putconn(connection)
            await self._pool.drain()

    def _remember_attempt(self, error: psycopg.Error | None) -> None:
        self._connect_error = error
