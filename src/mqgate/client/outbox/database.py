"""Statements on what applications have: sessions and connections of SQLAlchemy 2, and connections of DB-API drivers."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

__all__ = ["OutboxError", "dialect_of", "execute", "statement"]

_SUPPORTED = ("sqlite", "postgresql")
_PARAMETER = re.compile(r":(\w+)")
_DRIVERS = {"sqlite3": "sqlite", "psycopg": "postgresql", "psycopg2": "postgresql"}


class OutboxError(Exception):
    """The outbox cannot be used; the text names the remedy."""


def dialect_of(target: Any) -> str:
    """Return `sqlite` or `postgresql`. Raise OutboxError for other databases."""
    if hasattr(target, "get_bind"):
        target = target.get_bind()
    if hasattr(target, "dialect"):
        name = str(target.dialect.name)
    else:
        module = type(getattr(target, "driver_connection", target)).__module__.partition(".")[0]
        name = _DRIVERS.get(module, module)
    if name not in _SUPPORTED:
        raise OutboxError(f"the outbox does not support {name}: use SQLite or PostgreSQL (psycopg)")
    return name


def execute(target: Any, name: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
    """Run a statement in the current transaction of the target, and return its rows."""
    text = statement(name)
    if hasattr(target, "dialect") or hasattr(target, "get_bind"):
        result = target.execute(import_module("sqlalchemy").text(text), dict(parameters))
        return result.fetchall() if result.returns_rows else []
    if dialect_of(target) == "postgresql":
        text = _PARAMETER.sub(r"%(\1)s", text)
    cursor = target.cursor()
    try:
        cursor.execute(text, dict(parameters))
        return cursor.fetchall() if cursor.description else []
    finally:
        cursor.close()


@cache
def statement(name: str) -> str:
    """Return a statement of `queries/`, without its comment."""
    text = files(__package__).joinpath("queries", f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
