"""SQLite's threads: one that writes, two that read, each with its own connection and mailbox.

The writer takes everything that waits in its mailbox into one transaction: one fsync serves all of them (group commit).
A job must therefore be repeatable: if any job of a batch fails, the batch is rolled back and each job is run
again in a transaction of its own, so that a failure touches nobody else. `after_commit` tells the rest of the
process: it runs in the loop's thread, in the order of the jobs, before anybody is answered.

A durable job is answered when its commit is on disk. Lease steps are not durable: their commits survive the end of
the process at once and a power cut with the next fsync; what a power cut takes of them is delivered again.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import apsw

from mqgate.core.errors import MqgateError, StorageFull, StorageUnavailable

_T = TypeVar("_T")
_MOST_JOBS = 1024


class StoreClock:
    """The store's clock: the wall clock, but never behind what was seen before, also after a restart."""

    def __init__(self, wall_ms: Callable[[], int], high_water_ms: int) -> None:
        self._wall_ms = wall_ms
        self.high_water_ms = high_water_ms

    def now_ms(self) -> int:
        self.high_water_ms = max(self._wall_ms(), self.high_water_ms)
        return self.high_water_ms


class View:
    """What a reading job may use."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.execute = connection.execute
        self._limit = connection.limit

    @contextmanager
    def no_value_beyond(self, max_bytes: int) -> Iterator[None]:
        """Within it a statement that meets or makes a larger value fails with TooBigError."""
        usual = self._limit(apsw.SQLITE_LIMIT_LENGTH, max_bytes)
        try:
            yield
        finally:
            self._limit(apsw.SQLITE_LIMIT_LENGTH, usual)

    def one(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        """The first row, or None."""
        return self.execute(sql, values).fetchone()

    def all(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self.execute(sql, values).fetchall()


class Transaction(View):
    """What a writing job may use: the connection, and one instant for the whole step.

    `drafts` is shared by the jobs of one transaction; `on_commit` runs in the writer's thread once it is committed.
    """

    def __init__(self, connection: apsw.Connection, now_ms: int) -> None:
        super().__init__(connection)
        self.now_ms = now_ms
        self.drafts: dict[Any, Any] = {}
        self.on_commit: list[Callable[[], None]] = []


class _Letter(NamedTuple):
    job: Callable[[Any], Any]
    after_commit: Callable[[Any], None] | None
    is_durable: bool
    answer: asyncio.Future[Any]


class _Mailbox:
    """A thread with a queue of letters, answering each batch with one wake-up of the loop."""

    def __init__(self, name: str) -> None:
        self._letters: SimpleQueue[_Letter | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_closed = False

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Work off what waits, then end."""
        self._is_closed = True
        if self._thread.is_alive():
            self._letters.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def post(
        self,
        job: Callable[[Any], _T],
        after_commit: Callable[[_T], None] | None = None,
        *,
        is_durable: bool = True,
    ) -> asyncio.Future[_T]:
        if self._is_closed:
            # Else who asks would wait for ever, and whoever waits for that one too.
            raise StorageUnavailable("the gateway is stopping")
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._letters.put(_Letter(job, after_commit, is_durable, answer))
        return answer

    def _run(self) -> None:
        while True:
            letters = [self._letters.get()]
            try:
                while len(letters) < _MOST_JOBS:
                    letters.append(self._letters.get_nowait())
            except Empty:
                pass
            batch = [letter for letter in letters if letter is not None]
            if batch:
                outcomes = self._work(batch)
                _deliver(batch, outcomes)
            if len(batch) < len(letters):
                self._close()
                return

    def _work(self, batch: list[_Letter]) -> list[Any]:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


def _deliver(batch: list[_Letter], outcomes: list[Any]) -> None:
    def resolve() -> None:
        for letter, outcome in zip(batch, outcomes, strict=True):
            is_error = isinstance(outcome, BaseException)
            if letter.after_commit is not None and not is_error:
                letter.after_commit(outcome)
            # Done already: the one who asked has gone. What was committed stays committed.
            if letter.answer.done():
                continue
            if is_error:
                letter.answer.set_exception(outcome)
            else:
                letter.answer.set_result(outcome)

    try:
        batch[0].answer.get_loop().call_soon_threadsafe(resolve)
    except RuntimeError:
        # The loop is closed: nobody waits any more, and what was committed stays committed.
        return


class Writer(_Mailbox):
    """The one thread that writes."""

    def __init__(self, connection: apsw.Connection, clock: StoreClock) -> None:
        super().__init__("mqgate-writer")
        self._connection = connection
        self._clock = clock
        self._is_durable = True

    def _work(self, batch: list[_Letter]) -> list[Any]:
        try:
            return self._commit(batch)
        except Exception as error:  # noqa: BLE001 - every failure is handed to who asked
            if len(batch) == 1:
                return [_translate(error)]
            return [outcome for letter in batch for outcome in self._work([letter])]

    def _commit(self, batch: list[_Letter]) -> list[Any]:
        connection = self._connection
        is_durable = any(letter.is_durable for letter in batch)
        if is_durable is not self._is_durable:
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._is_durable = is_durable
        connection.execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(connection, self._clock.now_ms())
            outcomes = [letter.job(transaction) for letter in batch]
            connection.execute("UPDATE meta SET value = ? WHERE name = 'clock'", (transaction.now_ms,))
            connection.execute("COMMIT")
        except BaseException:
            # A full disk may have rolled back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for done in transaction.on_commit:
            done()
        return outcomes

    def _close(self) -> None:
        self._connection.close()


class Reader(_Mailbox):
    """A thread that reads the newest committed state."""

    def __init__(self, connection: apsw.Connection, name: str = "mqgate-reader") -> None:
        super().__init__(name)
        self._connection = connection
        self._view = View(connection)

    def _work(self, batch: list[_Letter]) -> list[Any]:
        outcomes: list[Any] = []
        for letter in batch:
            try:
                outcomes.append(letter.job(self._view))
            except Exception as error:  # noqa: BLE001 - every failure is handed to who asked
                outcomes.append(_translate(error))
        return outcomes

    def _close(self) -> None:
        self._connection.close()


def _translate(error: Exception) -> Exception:
    """SQLite's failures in our words; a bug stays what it is."""
    if isinstance(error, MqgateError):
        return error
    translated: MqgateError
    if isinstance(error, apsw.FullError):
        translated = StorageFull("free some disk space or lower a topic's retention; nothing stored was lost")
    elif isinstance(error, apsw.Error):
        translated = StorageUnavailable(f"the database answered: {error}")
    else:
        return error
    translated.__cause__ = error
    return translated
