"""The statistics database in PostgreSQL, in the schema that also contains the control data."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

from mqgate.core.errors import FiguresNotFound, MqgateError, StorageFull, StorageRefused, StorageUnavailable
from mqgate.core.urls import can_show_hosts
from mqgate.stats.store import Execute, Row

__all__ = ["PostgresDatabase"]

_IS_SCHEMA = "SELECT 1 FROM pg_namespace WHERE nspname = %s"


class PostgresDatabase:
    def __init__(self, url: str, schema: str, *, connect_timeout: float = 3.0) -> None:
        if not can_show_hosts(url):
            raise StorageRefused("[postgres] url: write @ as %40 and / as %2F in the password")
        try:
            conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The error text contains the URL with the password.
            raise StorageRefused(
                "[postgres] url is invalid: use postgresql://user:password@host:5432/database"
            ) from None
        self._url = url
        self._schema = schema
        self._timeout = max(1, round(connect_timeout))

    @contextmanager
    def transaction(self, *, is_writing: bool) -> Iterator[Execute]:
        try:
            with psycopg.connect(self._url, connect_timeout=self._timeout) as connection:
                schema = sql.Identifier(self._schema)
                if not connection.execute(_IS_SCHEMA, [self._schema]).fetchone():
                    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
                connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(schema))
                if is_writing:
                    # Serialize writers, as SQLite does: a roll-up must see all of a batch, or none of it.
                    connection.execute("LOCK TABLE stats_layout IN EXCLUSIVE MODE")
                yield _Statements(connection)
        except psycopg.Error as error:
            raise _translated(error) from error


class _Statements:
    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        self._connection = connection

    def __call__(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(_marked(statement), tuple(values))
        return [] if cursor.description is None else [tuple(map(_plain, row)) for row in cursor.fetchall()]

    def many(self, statement: str, rows: Iterable[Row]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_marked(statement), [tuple(row) for row in rows])


def _marked(statement: str) -> Any:
    return statement.replace("%", "%%").replace("?", "%s")


def _plain(value: Any) -> Any:
    """Convert a sum, which PostgreSQL returns as a decimal, to an integer."""
    return int(value) if isinstance(value, Decimal) else value


def _translated(error: psycopg.Error) -> MqgateError:
    if isinstance(error, errors.DiskFull):
        return StorageFull(f"PostgreSQL's disk is full: free some space; nothing was changed ({error})")
    if isinstance(error, errors.InsufficientPrivilege | errors.InvalidPassword | errors.ReadOnlySqlTransaction):
        return StorageRefused(f"PostgreSQL denied access: {error}")
    if isinstance(error, psycopg.errors.UndefinedTable):
        return FiguresNotFound("there are no statistics tables in PostgreSQL: start `mqgate pipeline run`")
    return StorageUnavailable(f"PostgreSQL cannot be used: {error}", retry_after=1)
