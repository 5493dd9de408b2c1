"""`mqgate outbox`: messages that commit with the transactions of an application."""

import signal
import sqlite3
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.client import Client
from mqgate.client.outbox import Outbox, OutboxError, Relay

__all__ = ["outbox"]

_database = click.option(
    "--database",
    required=True,
    envvar="MQGATE_OUTBOX_DATABASE",
    show_envvar=True,
    metavar="URL",
    help="sqlite:///path or postgresql://user:password@host/name.",
)


@click.group()
def outbox() -> None:
    """Publish the rows of an outbox, and show those that were refused."""


@outbox.command(
    epilog=examples(
        "mqgate outbox relay --database sqlite:///shop.db",
        "mqgate outbox relay --database sqlite:///shop.db --once",
    )
)
@_database
@click.option("--producer", help="Publish as this producer; default: the producer of the API key.")
@click.option("--once", is_flag=True, help="Publish what is in the outbox now, and exit.")
@with_session
def relay(session: Session, database: str, producer: str | None, once: bool) -> None:
    """Publish the rows of the outbox until Ctrl-C or SIGTERM. Several relays may run at the same time."""
    with Client(session.url, session.key) as client:
        moving = Relay(_connector(database), client, producer=producer)
        try:
            moving.check()
        except OutboxError as error:
            raise click.UsageError(str(error)) from error
        count = 0
        if once:
            while done := moving.run_once():
                count += done
            note(f"{count} rows done")
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: moving.stop())
        moving.run()


@outbox.command("list")
@_database
@with_session
def list_(session: Session, database: str) -> None:
    """List the rows that the gateway refused. Each blocks the later rows of its key."""
    connection = _connector(database)()
    try:
        rows = Outbox().refused(connection)
    finally:
        connection.close()
    items = [
        {"number": row.number, "id": row.id, "topic": row.topic, "key": row.key, "reason": row.reason} for row in rows
    ]
    session.show_list(items, ("number", "id", "topic", "key", "reason"))


@outbox.command()
@_database
@with_session
def retry(session: Session, database: str) -> None:
    """Let the relays publish the refused rows again, after their cause was removed."""
    connection = _connector(database)()
    try:
        Outbox().retry(connection)
        connection.commit()
    finally:
        connection.close()
    session.confirm({}, "the refused rows are published again")


def _connector(url: str) -> Callable[[], Any]:
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
