"""One data directory: its lock, its database file, its schema, its threads."""

import asyncio
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


_STATEMENTS = 500
_CACHE_KIB = 64 << 10
_SCAN_CACHE_KIB = 4 << 10
_EPOCHS_PER_BOOT = 1 << 32
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def queries(name: str) -> dict[str, str]:
    """The statements of queries/<name>.sql, each below a line `-- name: ...`."""
    return statements("mqgate.adapters.sqlite", name)


class Engine:
    """The embedded engine of one process. A second process on the same directory is refused."""

    def __init__(
        self,
        directory: Path,
        *,
        synchronous: str = "full",
        most_bytes: int = 0,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "mqgate.db"
        self._lock = _locked(directory / "lock")
        # Nobody else's to read: it holds the keys that receipts are signed with. SQLite's other files follow its mode.
        self.path.touch(mode=0o600)
        self._is_durable = synchronous == "full"
        connection = self._connect()
        _migrate(connection)
        _outlive_power_cut(connection)
        if most_bytes:
            page = View(connection).one("PRAGMA page_size")[0]
            connection.execute(f"PRAGMA max_page_count = {max(most_bytes // page, 1)}")
        high_water = View(connection).one("SELECT value FROM meta WHERE name = 'clock'")[0]
        self.clock = StoreClock(wall_ms, high_water)
        self._writer = Writer(connection, self.clock)
        self._reader = Reader(self._connect())
        # What it reads it reads once: a cache would only take memory.
        self._scanner = Reader(self._connect(cache_kib=_SCAN_CACHE_KIB), "mqgate-scanner")
        for thread in (self._writer, self._reader, self._scanner):
            thread.start()

    def _connect(self, cache_kib: int = _CACHE_KIB) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), statementcachesize=_STATEMENTS)
        connection.set_busy_timeout(5000)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute("PRAGMA mmap_size = 268435456").fetchall()
        return connection

    async def write(self, job: Callable[[Transaction], _T], after_commit: Callable[[_T], None] | None = None) -> _T:
        """Run a job in the writer's next transaction; answered after the commit is on disk."""
        return await self._writer.post(job, after_commit, is_durable=self._is_durable)

    async def step(self, job: Callable[[Transaction], _T]) -> _T:
        """As `write`, but without waiting for the disk: for leases, whose loss costs a redelivery."""
        return await self._writer.post(job, is_durable=False)

    def post(
        self, job: Callable[[Transaction], _T], after_commit: Callable[[_T], None] | None, *, is_durable: bool = True
    ) -> asyncio.Future[_T]:
        """As `write`, for who does not wait; the future is returned."""
        return self._writer.post(job, after_commit, is_durable=is_durable and self._is_durable)

    async def read(self, job: Callable[[View], _T]) -> _T:
        """Run a job on the newest committed state."""
        return await self._reader.post(job)

    async def scan(self, job: Callable[[View], _T]) -> _T:
        """As `read`, for jobs that take long: nobody but their like waits behind them."""
        return await self._scanner.post(job)

    async def probe(self) -> None:
        """Commit nothing, durably: raises what a publish would."""
        await self.write(lambda _: None)

    async def close(self) -> None:
        """Finish what waits, then close the files. Safe to call twice."""
        await self._scanner.stop()
        await self._reader.stop()
        await self._writer.stop()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(path: Path) -> int:
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StorageUnavailable(
            f"another mqgate uses {path.parent}: stop it, or give this one its own --data-dir"
        ) from None
    return lock


def _migrate(connection: apsw.Connection) -> None:
    """Apply the schema files that this database has not seen, in order."""
    scripts = schema_files("mqgate.adapters.sqlite")
    done = View(connection).one("PRAGMA user_version")[0]
    if done > len(scripts):
        raise StorageUnavailable(f"the data directory was written by a newer mqgate (schema {done}): upgrade this one")
    for number, script in enumerate(scripts[done:], start=done + 1):
        with connection:
            connection.execute(script.sql)
            connection.execute(f"PRAGMA user_version = {number}")


def _outlive_power_cut(connection: apsw.Connection) -> None:
    """After the machine went down, let epochs leap above those that leases may have reached without being on disk.

    Else a receipt from before could name an epoch that is given to somebody else now.
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
