"""Statements on what applications have: sessions and connections of SQLAlchemy 2, and connections of DB-API drivers."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

__all__ = ["DatabaseUnusable", "Statements", "check_table", "dialect_of", "transaction"]

# The current time of the database, in seconds since 1970.
_CLOCKS = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch FROM clock_timestamp())",
}
_PARAMETER = re.compile(r":(\w+)")
_DRIVERS = {"sqlite3": "sqlite", "psycopg": "postgresql", "psycopg2": "postgresql"}


class DatabaseUnusable(Exception):
    """The database or its table cannot be used; the text names the remedy."""


def check_dialect(name: str) -> str:
    if name not in _CLOCKS:
        raise DatabaseUnusable(f"{name} is not supported: use SQLite (sqlite) or PostgreSQL (postgresql, with psycopg)")
    return name


def dialect_of(target: Any) -> str:
    """Return `sqlite` or `postgresql`. Raise DatabaseUnusable for other databases."""
    if hasattr(target, "get_bind"):
        target = target.get_bind()
    if hasattr(target, "dialect"):
        return check_dialect(str(target.dialect.name))
    module = type(getattr(target, "driver_connection", target)).__module__.partition(".")[0]
    return check_dialect(_DRIVERS.get(module, module))


class Statements:
    """The statements in `queries/` of a package, of which some have a variant for each dialect."""

    def __init__(self, package: str) -> None:
        self._package = package

    def text(self, name: str, dialect: str) -> str:
        return _load(self._package, name, check_dialect(dialect))

    def execute(self, target: Any, name: str, **parameters: Any) -> Sequence[Sequence[Any]]:
        """Run a statement in the current transaction of the target, and return its rows."""
        dialect = dialect_of(target)
        text = self.text(name, dialect)
        if hasattr(target, "dialect") or hasattr(target, "get_bind"):
            result = target.execute(import_module("sqlalchemy").text(text), parameters)
            return result.fetchall() if result.returns_rows else []
        if dialect == "postgresql":
            text = _PARAMETER.sub(r"%(\1)s", text)
        cursor = target.cursor()
        try:
            cursor.execute(text, parameters)
            return cursor.fetchall() if cursor.description else []
        finally:
            cursor.close()


@contextmanager
def transaction(connect: Callable[[], Any]) -> Iterator[Any]:
    """Open a connection, commit at the end and roll back after an exception."""
    connection = connect()
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()


def check_table(connect: Callable[[], Any], statements: Statements, remedy: str) -> None:
    """Raise DatabaseUnusable, with the remedy, if the statement `check` fails."""
    try:
        with transaction(connect) as connection:
            statements.execute(connection, "check")
    except DatabaseUnusable:
        raise
    except Exception as error:
        raise DatabaseUnusable(f"{remedy}: {error}") from error


@cache
def _load(package: str, name: str, dialect: str) -> str:
    """Return a statement without its comment."""
    folder = files(package).joinpath("queries")
    variant = folder.joinpath(f"{name}_{dialect}.sql")
    text = (variant if variant.is_file() else folder.joinpath(f"{name}.sql")).read_text("utf-8")
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
    return kept.replace("{now}", _CLOCKS[dialect])
