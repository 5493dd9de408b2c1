"""`mqgate scheduled`: messages with a delivery time in the future."""

from typing import Any

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import duration, instant, name

__all__ = ["scheduled"]

_COLUMNS = ("id", "topic", "deliverAt", "key", "tag", "properties")
_id_argument = click.argument("message_id", metavar="ID", type=name)


@click.group()
def scheduled() -> None:
    """List, show, cancel and re-time messages published with --delay or --deliver-at."""


@scheduled.command(
    "list",
    epilog=examples(
        "mqgate scheduled list",
        "mqgate scheduled list --topic orders --to 2030-01-31T12:00:00Z",
    ),
)
@click.option("--topic", help="Only messages of this topic.")
@click.option("--from", "since", metavar="INSTANT", help="Only messages due at this instant or later.")
@click.option("--to", "until", metavar="INSTANT", help="Only messages due before this instant.")
@click.option("--limit", type=int, help="Number of rows (default 100, at most 1000).")
@click.option("--cursor", help="Cursor of the previous page.")
@with_session
def list_(session: Session, /, **query: Any) -> None:
    """List the scheduled messages, the next one first."""
    with session.connect() as client:
        session.show_page(client.scheduled.list(**query), _COLUMNS)


@scheduled.command()
@_id_argument
@with_session
def show(session: Session, message_id: str) -> None:
    """Show the message ID: its delivery time, its body and its state."""
    with session.connect() as client:
        session.show(client.scheduled.get(message_id))


@scheduled.command()
@_id_argument
@with_session
def cancel(session: Session, message_id: str) -> None:
    """Cancel the message ID. A delivered message cannot be cancelled."""
    with session.connect() as client:
        session.confirm(client.scheduled.cancel(message_id), f"message {message_id} cancelled")


@scheduled.command(
    epilog=examples(
        "mqgate scheduled retime 01a1e2466d55b0ac2679239be0e0b4a3 --delay 2h",
        'mqgate scheduled retime 01a1e2466d55b0ac2679239be0e0b4a3 --deliver-at "$(date -u +%Y)-12-31T23:59:59Z"',
    )
)
@_id_argument
@click.option("--delay", type=duration, metavar="DURATION", help="Delay from now: 30s, 2h, 10d; 0 delivers at once.")
@click.option("--deliver-at", type=instant, metavar="INSTANT", help="Delivery time, such as 2030-01-31T12:00:00Z.")
@with_session
def retime(session: Session, message_id: str, delay: float | str | None, deliver_at: int | str | None) -> None:
    """Change the delivery time of the message ID, unless it was delivered or cancelled."""
    if (delay is None) == (deliver_at is None):
        raise click.UsageError("provide either --delay or --deliver-at")
    with session.connect() as client:
        session.show(client.scheduled.retime(message_id, delay=delay, deliver_at=deliver_at))
