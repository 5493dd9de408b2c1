"""The data directory of the embedded engine: its lock, its database file, its schema and its threads."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from mqgate.adapters.sqlite.threads import Reader, StoreClock, Transaction, View, Writer
from mqgate.core.errors import StorageUnavailable
from mqgate.sql_files import schema_files, statements

_T = TypeVar("_T")

_CACHED_STATEMENTS = 500
_CACHE_KIB = 64 << 10
_SCAN_CACHE_KIB = 4 << 10
_EPOCHS_PER_BOOT = 1 << 32
_LAST_APPEND = """
SELECT max((SELECT stored_at FROM message WHERE position < (number + 1) << 40 ORDER BY position DESC LIMIT 1))
FROM queue
"""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def queries(name: str) -> dict[str, str]:
    """The statements of queries/<name>.sql, each below a line `-- name: ...`."""
    return statements("mqgate.adapters.sqlite", name)


class Engine:
    """The embedded engine of one process. Opening a directory that another process uses fails."""

    def __init__(
        self,
        directory: Path,
        *,
        synchronous: str = "full",
        max_bytes: int = 0,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "mqgate.db"
        self._lock = _lock(directory / "lock")
        # Readable by its owner only, because it contains the keys that sign receipts. SQLite creates its other files
        # with the same mode.
        self.path.touch(mode=0o600)
        self._is_durable = synchronous == "full"
        connection = self._connect()
        _migrate(connection)
        _raise_epochs_after_boot(connection)
        if max_bytes:
            page = View(connection).one("PRAGMA page_size")[0]
            connection.execute(f"PRAGMA max_page_count = {max(max_bytes // page, 1)}")
        self.clock = StoreClock(wall_ms, _last_time(connection))
        self._writer = Writer(connection, self.clock)
        self._reader = Reader(self._connect())
        # It reads each page once, so that a large cache would only take memory.
        self._scanner = Reader(self._connect(cache_kib=_SCAN_CACHE_KIB), "mqgate-scanner")
        for thread in (self._writer, self._reader, self._scanner):
            thread.start()

    def _connect(self, cache_kib: int = _CACHE_KIB) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), statementcachesize=_CACHED_STATEMENTS)
        connection.set_busy_timeout(5000)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute("PRAGMA mmap_size = 268435456").fetchall()
        return connection

    async def write(self, job: Callable[[Transaction], _T], after_commit: Callable[[_T], None] | None = None) -> _T:
        """Run a job in the next transaction of the writing thread. Return its result once the commit is on disk.

        `after_commit` updates the state of the process with the result, before any result of the commit is returned.
        """
        return await self._writer.run(job, after_commit, is_durable=self._is_durable)

    async def step(self, job: Callable[[Transaction], _T]) -> _T:
        """Run a job as `write` does, but do not wait for the disk. For leases, whose loss costs a redelivery."""
        return await self._writer.run(job, is_durable=False)

    def post(
        self, job: Callable[[Transaction], _T], succeed: Callable[[_T], None], fail: Callable[[Exception], None]
    ) -> None:
        """Run a job as `write` does, and call `succeed` with its result or `fail` with its error."""
        self._writer.post(job, succeed, fail, is_durable=self._is_durable)

    async def read(self, job: Callable[[View], _T]) -> _T:
        """Run a job on the newest committed state."""
        return await self._reader.run(job)

    async def scan(self, job: Callable[[View], _T]) -> _T:
        """Run a long job on the newest committed state, in a thread of its own, so that reads do not wait for it."""
        return await self._scanner.run(job)

    async def probe(self) -> None:
        """Commit an empty transaction. Raise the error that a publish would raise."""
        await self.write(lambda _: None)

    async def close(self) -> None:
        """Finish the queued jobs, then close the files. Safe to call twice."""
        await self._scanner.stop()
        await self._reader.stop()
        await self._writer.stop()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _lock(path: Path) -> int:
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StorageUnavailable(
            f"Another mqgate uses {path.parent}. Stop it, or start this one with another --data-dir."
        ) from None
    return lock


def _migrate(connection: apsw.Connection) -> None:
    """Apply the schema files that have not been applied to this database, in order."""
    scripts = schema_files("mqgate.adapters.sqlite")
    done = View(connection).one("PRAGMA user_version")[0]
    if done > len(scripts):
        raise StorageUnavailable(f"A newer mqgate wrote the data directory (schema {done}). Upgrade this one.")
    for number, script in enumerate(scripts[done:], start=done + 1):
        with connection:
            connection.execute(script.sql)
            connection.execute(f"PRAGMA user_version = {number}")


def _last_time(connection: apsw.Connection) -> int:
    """Return the last time of the store clock that was committed: by an append, or by any other transaction."""
    view = View(connection)
    append: int | None = view.one(_LAST_APPEND)[0]
    other: int = view.one("SELECT value FROM meta WHERE name = 'clock'")[0]
    return max(append or 0, other)


def _raise_epochs_after_boot(connection: apsw.Connection) -> None:
    """After a restart of the machine, raise all epochs above those of grants that did not reach the disk.

    Otherwise a receipt from before the restart could have the epoch of a new grant.
    """
    boot = _BOOT_ID.read_text("ascii").strip() if _BOOT_ID.exists() else ""
    with connection:
        row = View(connection).one("SELECT text FROM note WHERE name = 'boot'")
        if row is None or row[0] != boot or not boot:
            connection.execute("UPDATE lease_scope SET epoch = epoch + ?", (_EPOCHS_PER_BOOT,))
            connection.execute("UPDATE queue_lease SET leap = ?", (_EPOCHS_PER_BOOT,))
            connection.execute(
                "INSERT INTO note VALUES ('boot', ?) ON CONFLICT DO UPDATE SET text = excluded.text", (boot,)
            )
