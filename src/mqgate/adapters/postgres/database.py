"""One PostgreSQL, many gateways: a pool, statements by name, deadlines, and errors in our own words.

An operation is one statement wherever it can be: that is a transaction of its own, one journey, and nothing that a
gateway which dies in between could leave open. What was begun is carried through or fails by its deadline, whether or
not whoever asked still waits: a client that hangs up neither breaks a connection nor leaves one waiting. See `faults`
for what is tried again here, and what the rest is told.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from importlib import resources
from typing import Any, TypeVar

import psycopg

from mqgate.adapters.postgres import faults, migrations
from mqgate.adapters.postgres.connections import Connection, Timeouts, connect_alone, is_alive, open_pool, sever
from mqgate.core.errors import MqgateError, StorageUnavailable

__all__ = ["Database", "Transaction", "queries"]

_T = TypeVar("_T")
_TRIES = 5
_PAUSE = 0.01
_NOTHING: Mapping[str, Any] = {}
# A subquery: PostgreSQL asks its clock once a statement, and can still look up the answer in an index.
_NOW = "(SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))"
# Seen lately; or, after the clock was set back, not long after now.
_LIVE = f"SELECT owner FROM gateway WHERE seen_at > {_NOW} - lease AND seen_at < {_NOW} + lease"  # noqa: S608 - constants


def queries(name: str, columns: str = "") -> dict[str, bytes]:
    """The statements of queries/<name>.sql, each below a line `-- name: ...`.

    {now} is the store's clock, {live} the owners that are up, {columns} what the caller wants.
    """
    text = resources.files(__package__).joinpath("queries", f"{name}.sql").read_text("utf-8")
    for mark, meaning in (("{live}", _LIVE), ("{now}", _NOW), ("{columns}", columns)):
        text = text.replace(mark, meaning)
    parts = text.split("-- name: ")[1:]
    return {head.strip(): sql.strip().encode() for head, _, sql in (part.partition("\n") for part in parts)}


class Transaction:
    """What a job of several statements may use."""

    def __init__(self, connection: Connection, now: datetime | None) -> None:
        self._connection = connection
        self._now = now

    async def rows(self, sql: bytes, values: Mapping[str, Any] = _NOTHING) -> list[tuple[Any, ...]]:
        cursor = await self._connection.execute(sql, {**values, "now": self._now}, binary=True)
        return await cursor.fetchall() if cursor.description else []


_Work = Callable[[Connection, Callable[[], None]], Awaitable[_T]]


class Database:
    def __init__(
        self,
        url: str,
        *,
        schema: str = "mqgate",
        least: int = 1,
        most: int = 8,
        timeouts: Timeouts | None = None,
        now: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        """`now` is for tests; None leaves the clock to the server."""
        self._url = url
        self.schema = schema
        self._timeouts = timeouts or Timeouts()
        self._now = now
        self._at_the_door: psycopg.Error | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pool = open_pool(
            url, schema=schema, least=least, most=most, timeouts=self._timeouts, met=self._remember_attempt
        )

    async def open(self, scripts: Sequence[migrations.Script] | None = None) -> None:
        """Connect and bring the tables up to date; raises what is wrong, and is closed then."""
        await self._pool.open()
        wanted = migrations.scripts() if scripts is None else scripts
        end = asyncio.get_running_loop().time() + self._timeouts.connect.total_seconds() + 1
        try:
            while not await self._is_migrated(wanted, end):  # noqa: ASYNC110 - each is a question
                await asyncio.sleep(_PAUSE)
        except BaseException:
            await self.close()
            raise

    async def _is_migrated(self, wanted: Sequence[migrations.Script], end: float) -> bool:
        """False: the server went away meanwhile, and there is time to try again."""
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
            raise faults.translated(error, at_the_door=self._at_the_door, is_unknown=False) from error
        return True

    async def close(self) -> None:
        """Finish what runs, then hang up. Safe to call twice."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._pool.close()

    async def read(self, sql: bytes, values: Mapping[str, Any] = _NOTHING) -> list[tuple[Any, ...]]:
        """One statement that changes nothing."""
        return await self.write(sql, values, is_repeatable=True)

    async def write(
        self, sql: bytes, values: Mapping[str, Any] = _NOTHING, *, is_repeatable: bool = False
    ) -> list[tuple[Any, ...]]:
        """One statement, committed. Repeatable: doing it twice is as doing it once, so a lost answer costs a repeat."""

        async def work(connection: Connection, sent: Callable[[], None]) -> list[tuple[Any, ...]]:
            sent()
            return await Transaction(connection, self._now()).rows(sql, values)

        return await self._carry_through(self._repeat(work, is_repeatable=is_repeatable))

    async def transact(self, job: Callable[[Transaction], Awaitable[_T]]) -> _T:
        """Several statements, all or none. The job is run again if others were in the way."""

        async def work(connection: Connection, sent: Callable[[], None]) -> _T:
            async with connection.transaction():
                done = await job(Transaction(connection, self._now()))
                # What is lost before the commit is sent was certainly not done.
                sent()
            return done

        return await self._carry_through(self._repeat(work, is_repeatable=False))

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[Connection]:
        """A connection beside the pool, for one who keeps it for long; what goes wrong with it is told in our words."""
        try:
            async with await connect_alone(self._url, self._timeouts) as connection:
                await connection.execute(b"SELECT set_config('search_path', %s, false)", (f'"{self.schema}"',))
                yield connection
        except psycopg.Error as error:
            raise faults.translated(error, at_the_door=None, is_unknown=False) from error

    async def probe(self) -> None:
        """Raises what a write would."""
        rows = await self.read(b"SELECT current_setting('transaction_read_only')")
        if rows != [("off",)]:
            raise StorageUnavailable("this PostgreSQL takes no writes", retry_after=1)

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start something that is finished before the database closes."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    async def _carry_through(self, work: Coroutine[Any, Any, _T]) -> _T:
        return await asyncio.shield(self.spawn(work))

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Seen, in case nobody waits for it any more.
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
                may_help = faults.is_conflict(error) or (faults.is_lost(error) and not is_unknown)
                if not may_help or attempt == _TRIES or loop.time() >= end:
                    raise faults.translated(error, at_the_door=self._at_the_door, is_unknown=is_unknown) from error
            await asyncio.sleep(random.uniform(0, _PAUSE * 2**attempt))  # noqa: S311 - so that two do not meet again

    async def _once(self, work: _Work[_T], sent: Callable[[], None], end: float) -> _T:
        loop = asyncio.get_running_loop()
        connection = await self._checkout(min(self._timeouts.checkout.total_seconds(), end - loop.time()))
        deadline = loop.call_at(end, sever, connection)
        try:
            return await work(connection, sent)
        except psycopg.Error as error:
            if faults.is_read_only(error):
                # The primary is elsewhere by now: the next connection looks for it.
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
            # The server went away and may be back: none of the others is of any use either.
            await connection.close()
            await self._pool.putconn(connection)
            await self._pool.drain()

    def _remember_attempt(self, error: psycopg.Error | None) -> None:
        self._at_the_door = error
