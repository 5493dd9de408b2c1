"""The statistics database in its own SQLite file, so that long reports do not block the embedded engine."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from mqgate.core.errors import MqgateError, StorageFull, StorageRefused, StorageUnavailable
from mqgate.stats.store import Execute, Row

__all__ = ["SqliteDatabase"]

_BUSY_TIMEOUT = 10.0


class SqliteDatabase:
    def __init__(self, path: Path, *, is_writing: bool) -> None:
        self._path = path
        # A reader must not create an empty file that looks like a store.
        self._uri = f"{path.absolute().as_uri()}?mode={'rwc' if is_writing else 'rw'}"

    @contextmanager
    def transaction(self, *, is_writing: bool) -> Iterator[Execute]:
        try:
            with closing(
                sqlite3.connect(self._uri, uri=True, timeout=_BUSY_TIMEOUT, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE" if is_writing else "BEGIN")
                try:
                    yield _Statements(connection)
                except BaseException:
                    connection.rollback()
                    raise
                connection.commit()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error) -> MqgateError:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            return StorageFull(f"the disk of {self._path} is full: free some space; nothing was changed")
        if name == "SQLITE_NOTADB":
            return StorageRefused(
                f"{self._path} is not a statistics database: move it away, and backfill into a new one"
            )
        return StorageUnavailable(f"{self._path} cannot be used: {error}", retry_after=1)


class _Statements:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __call__(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, tuple(values)).fetchall()

    def many(self, statement: str, rows: Iterable[Row]) -> None:
        self._connection.executemany(statement, rows)
