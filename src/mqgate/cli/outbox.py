"""`mqgate outbox`: messages that commit with the transactions of an application."""

import signal

import click

from mqgate.cli.database import connector, database_option
from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.client import Client
from mqgate.client.outbox import DatabaseUnusable, Outbox, Relay

__all__ = ["outbox"]


@click.group()
def outbox() -> None:
    """Publish the rows of an outbox, and show those that were refused."""


@outbox.command(
    epilog=examples(
        "mqgate outbox relay --database sqlite:///shop.db",
        "mqgate outbox relay --database sqlite:///shop.db --once",
    )
)
@database_option
@click.option("--producer", help="Publish as this producer; default: the producer of the API key.")
@click.option("--once", is_flag=True, help="Publish what is in the outbox now, and exit.")
@with_session
def relay(session: Session, database: str, producer: str | None, once: bool) -> None:
    """Publish the rows of the outbox until Ctrl-C or SIGTERM. Several relays may run at the same time."""
    with Client(session.url, session.key) as client:
        moving = Relay(connector(database), client, producer=producer)
        try:
            moving.check()
        except DatabaseUnusable as error:
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
@database_option
@with_session
def list_(session: Session, database: str) -> None:
    """List the rows that the gateway refused. Each blocks the later rows of its key."""
    connection = connector(database)()
    try:
        rows = Outbox().refused(connection)
    finally:
        connection.close()
    items = [
        {"number": row.number, "id": row.id, "topic": row.topic, "key": row.key, "reason": row.reason} for row in rows
    ]
    session.show_list(items, ("number", "id", "topic", "key", "reason"))


@outbox.command()
@database_option
@with_session
def retry(session: Session, database: str) -> None:
    """Let the relays publish the refused rows again, after their cause was removed."""
    connection = connector(database)()
    try:
        Outbox().retry(connection)
        connection.commit()
    finally:
        connection.close()
    session.confirm({}, "the refused rows are published again")
