"""The option --database: the database of an application."""

import sqlite3
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

__all__ = ["connector", "database_option"]

database_option = click.option(
    "--database",
    required=True,
    envvar="MQGATE_APPLICATION_DATABASE",
    show_envvar=True,
    metavar="URL",
    help="sqlite:///path or postgresql://user:password@host/name.",
)


def connector(url: str) -> Callable[[], Any]:
    """Return the function that connects to the database. Raise UsageError for others."""
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite":
        return lambda: sqlite3.connect(path, timeout=30)
    if not url.startswith(("postgresql://", "postgres://")):
        raise click.UsageError("--database must begin with sqlite:/// or postgresql://")
    try:
        psycopg = import_module("psycopg")
    except ModuleNotFoundError as error:
        raise click.UsageError('PostgreSQL needs a driver: pip install "mqgate[postgres]"') from error
    return lambda: psycopg.connect(url)
