"""Databases of applications, and processes that end before any of their steps."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

Connect = Callable[[], Any]


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts steps, and crashes before one of them. Everything after a crash crashes as well."""

    def __init__(self, crash_at: int) -> None:
        self.count = 0
        self._crash_at = crash_at

    def next(self) -> None:
        self.count += 1
        if self.count >= self._crash_at:
            raise Crash


class CrashingConnection:
    """A connection that ends before its nth step. What is not committed is lost, as with a killed process."""

    def __init__(self, connection: Any, steps: Steps) -> None:
        self.driver_connection = connection
        self._steps = steps

    def cursor(self) -> Any:
        return _CrashingCursor(self.driver_connection.cursor(), self._steps)

    def commit(self) -> None:
        self._steps.next()
        self.driver_connection.commit()
        self._steps.next()

    def rollback(self) -> None:
        self.driver_connection.rollback()

    def close(self) -> None:
        self.driver_connection.close()


class _CrashingCursor:
    def __init__(self, cursor: Any, steps: Steps) -> None:
        self._cursor = cursor
        self._steps = steps

    def execute(self, *arguments: Any) -> None:
        self._steps.next()
        self._cursor.execute(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


@contextmanager
def sqlite_database(directory: Path) -> Iterator[Connect]:
    yield lambda: sqlite3.connect(directory / "shop.db", check_same_thread=False)


@contextmanager
def postgresql_database(url: str) -> Iterator[Connect]:
    schema = f"shop_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f'CREATE SCHEMA "{schema}"')
    yield lambda: psycopg.connect(url, options=f"-c search_path={schema}")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f'DROP SCHEMA "{schema}" CASCADE')
