"""The threads of SQLite: one writer and two readers. Each has its own connection and a queue of jobs.

The writer runs all queued jobs in one transaction, so one fsync serves all of them (group commit). A job must therefore
be repeatable: if any job of a batch fails, the batch is rolled back and each job runs again in a transaction of its
own, so that a failure does not affect other jobs. `after_commit` updates the state of the process: it runs in the
thread of the event loop, in the order of the jobs, before any result is returned.

The result of a durable job is returned when its commit is on disk. Lease steps are not durable: their commits survive a
crash of the process at once, and a power failure from the next fsync on. Messages whose lease steps were lost are
delivered again.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import apsw

from mqgate.core.errors import MqgateError, StorageFull, StorageUnavailable

_T = TypeVar("_T")
_MAX_JOBS = 1024


class StoreClock:
    """The clock of the store: the wall clock, but it never goes back, also not over a restart."""

    def __init__(self, wall_ms: Callable[[], int], high_water_ms: int) -> None:
        self._wall_ms = wall_ms
        self.high_water_ms = high_water_ms

    def now_ms(self) -> int:
        self.high_water_ms = max(self._wall_ms(), self.high_water_ms)
        return self.high_water_ms


class View:
    """The connection as a reading job may use it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.execute: Callable[..., apsw.Cursor] = connection.execute

    def one(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        """Return the first row, or None."""
        return self.execute(sql, values).fetchone()

    def all(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self.execute(sql, values).fetchall()


class Transaction(View):
    """The connection as a writing job may use it, with one instant for the whole step.

    `drafts` is shared by the jobs of one transaction; `on_commit` runs in the writer's thread after the commit.
    """

    def __init__(self, connection: apsw.Connection, now_ms: int) -> None:
        super().__init__(connection)
        self.now_ms = now_ms
        self.drafts: dict[Any, Any] = {}
        self.on_commit: list[Callable[[], None]] = []
        self._execute = connection.execute
        self._deferred: list[tuple[str, tuple[Any, ...]]] = []
        self.execute = self._begin_and_execute
        self._has_begun = False

    def defer(self, sql: str, values: tuple[Any, ...]) -> None:
        """Execute a statement before the next one of this transaction, or at its end.

        If the transaction has no other statement, it needs neither BEGIN nor COMMIT. Each statement releases and
        acquires the lock of the interpreter, for which a busy event loop competes.
        """
        if self._has_begun:
            self._execute(sql, values)
        else:
            self._deferred.append((sql, values))

    def commit(self) -> None:
        """Commit the transaction. Also store the clock, unless the one statement is an append, which contains it."""
        if not self._has_begun and len(self._deferred) == 1:
            ((sql, values),) = self._deferred
            # Without this, the transaction would refer to itself and be left to the garbage collector.
            self.execute = self._execute
            self._execute(sql, values)
            return
        self.execute("UPDATE meta SET value = ? WHERE name = 'clock'", (self.now_ms,))
        self.execute("COMMIT")

    def _begin_and_execute(self, sql: str, values: tuple[Any, ...] = ()) -> apsw.Cursor:
        # A job may have kept a reference to this method, so it may be called again.
        if not self._has_begun:
            self.execute = self._execute
            self._has_begun = True
            self._execute("BEGIN IMMEDIATE")
            for deferred in self._deferred:
                self._execute(*deferred)
        return self._execute(sql, values)


class _Job(NamedTuple):
    """A job and the two functions of which one is called with its result, in the thread of the loop."""

    run: Callable[[Any], Any]
    succeed: Callable[[Any], None]
    fail: Callable[[Exception], None]
    is_durable: bool
    loop: asyncio.AbstractEventLoop


class _WorkerThread:
    """A thread with a queue of jobs. It returns the results of each batch with one wake-up of the event loop."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_closed = False

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Run the queued jobs, then end the thread."""
        self._is_closed = True
        if self._thread.is_alive():
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    async def run(
        self,
        job: Callable[[Any], _T],
        after_commit: Callable[[_T], None] | None = None,
        *,
        is_durable: bool = True,
    ) -> _T:
        """Run a job and return its result."""
        result: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        # The caller may have been cancelled. The commit stays valid.
        def succeed(outcome: _T) -> None:
            if after_commit is not None:
                after_commit(outcome)
            if not result.done():
                result.set_result(outcome)

        def fail(error: Exception) -> None:
            if not result.done():
                result.set_exception(error)

        self.post(job, succeed, fail, is_durable=is_durable)
        return await result

    def post(
        self,
        job: Callable[[Any], _T],
        succeed: Callable[[_T], None],
        fail: Callable[[Exception], None],
        *,
        is_durable: bool = True,
    ) -> None:
        """Queue a job. Call `succeed` with its result, or `fail` with its error."""
        if self._is_closed:
            # The thread may have ended: a job that is queued now would never run.
            raise StorageUnavailable("The gateway is stopping. Repeat the request.")
        self._jobs.put(_Job(job, succeed, fail, is_durable, asyncio.get_running_loop()))

    def _run(self) -> None:
        while True:
            jobs = [self._jobs.get()]
            try:
                while len(jobs) < _MAX_JOBS:
                    jobs.append(self._jobs.get_nowait())
            except Empty:
                pass
            batch = [job for job in jobs if job is not None]
            if batch:
                outcomes = self._work(batch)
                _deliver(batch, outcomes)
            if len(batch) < len(jobs):
                self._close()
                return

    def _work(self, batch: list[_Job]) -> list[Any]:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


def _deliver(batch: list[_Job], outcomes: list[Any]) -> None:
    def resolve() -> None:
        for job, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                job.fail(outcome)
            else:
                job.succeed(outcome)

    try:
        batch[0].loop.call_soon_threadsafe(resolve)
    except RuntimeError:
        # The loop is closed and no caller is left. The commit stays valid.
        return


class Writer(_WorkerThread):
    """The one thread that writes."""

    def __init__(self, connection: apsw.Connection, clock: StoreClock) -> None:
        super().__init__("mqgate-writer")
        self._connection = connection
        self._clock = clock
        self._is_durable = True

    def _work(self, batch: list[_Job]) -> list[Any]:
        try:
            return self._commit(batch)
        except Exception as error:  # noqa: BLE001 - every failure is raised in the caller
            if len(batch) == 1:
                return [_translate(error)]
            return [outcome for job in batch for outcome in self._work([job])]

    def _commit(self, batch: list[_Job]) -> list[Any]:
        connection = self._connection
        is_durable = any(job.is_durable for job in batch)
        if is_durable is not self._is_durable:
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._is_durable = is_durable
        transaction = Transaction(connection, self._clock.now_ms())
        try:
            outcomes = [job.run(transaction) for job in batch]
            transaction.commit()
        except BaseException:
            # A full disk may have rolled back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for callback in transaction.on_commit:
            callback()
        return outcomes

    def _close(self) -> None:
        self._connection.close()


class Reader(_WorkerThread):
    """A thread that reads the newest committed state."""

    def __init__(self, connection: apsw.Connection, name: str = "mqgate-reader") -> None:
        super().__init__(name)
        self._connection = connection
        self._view = View(connection)

    def _work(self, batch: list[_Job]) -> list[Any]:
        outcomes: list[Any] = []
        for job in batch:
            try:
                outcomes.append(job.run(self._view))
            except Exception as error:  # noqa: BLE001 - every failure is raised in the caller
                outcomes.append(_translate(error))
        return outcomes

    def _close(self) -> None:
        self._connection.close()


def _translate(error: Exception) -> Exception:
    """Return the error of mqgate for an error of SQLite. Other exceptions are bugs and are returned unchanged."""
    if isinstance(error, MqgateError):
        return error
    translated: MqgateError
    if isinstance(error, apsw.FullError):
        translated = StorageFull("Free disk space or lower the retention of a topic. Stored messages are not affected.")
    elif isinstance(error, apsw.Error):
        translated = StorageUnavailable(f"The database returned an error: {error}.")
    else:
        return error
    translated.__cause__ = error
    return translated
