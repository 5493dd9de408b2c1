"""`mqgate processed`: the records of idempotent consumers."""

from datetime import timedelta

import click

from mqgate.cli.database import connector, database_option
from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import span
from mqgate.client.database import transaction
from mqgate.client.idempotent import Processed

__all__ = ["processed"]


@click.group()
def processed() -> None:
    """Maintain the records of messages that consumers have processed."""


@processed.command(
    epilog=examples("mqgate processed clean --database sqlite:///shop.db --older-than 30d"),
)
@database_option
@click.option(
    "--older-than", type=span, required=True, metavar="DURATION", help="Delete records older than this: 12h, 30d."
)
@with_session
def clean(session: Session, database: str, older_than: timedelta) -> None:
    """Delete old records. Keep them for longer than any copy of a message can arrive."""
    with transaction(connector(database)) as connection:
        count = Processed("").clean(connection, older_than)
    session.confirm({"deleted": count}, f"{count} records deleted")
