"""`mqgate alarm`: what fires, and what was notified."""

from typing import Any

import click

from mqgate.cli.alarm_channel import channel
from mqgate.cli.alarm_rule import rule
from mqgate.cli.alarm_silence import silence
from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session

__all__ = ["alarm"]

_COLUMNS = ("rule", "subject", "state", "value", "threshold", "since", "firedAt", "resolvedAt")
_limit = click.option("--limit", type=click.IntRange(1, 1000), help="Number of rows (default 100).")
_cursor = click.option("--cursor", help="Cursor of the previous page.")


@click.group()
def alarm() -> None:
    """Show alarms and notifications; set thresholds, silences and channels."""


@alarm.command("list", epilog=examples("mqgate alarm list", "mqgate alarm list --state firing --subject billing"))
@click.option("--state", type=click.Choice(["pending", "firing"]), help="Only alarms in this state.")
@click.option("--rule", help="Only alarms of this rule.")
@click.option("--subject", help="Only alarms of this group, topic or pipeline.")
@_limit
@_cursor
@with_session
def list_(session: Session, /, **query: Any) -> None:
    """List pending and firing alarms."""
    with session.connect() as client:
        session.show_page(client.alarms.list(**query), _COLUMNS[:6])


@alarm.command()
@_limit
@_cursor
@with_session
def history(session: Session, /, **query: Any) -> None:
    """List all alarms, newest first."""
    with session.connect() as client:
        session.show_page(client.alarms.history(**query), _COLUMNS)


@alarm.command()
@_limit
@_cursor
@with_session
def inbox(session: Session, /, **query: Any) -> None:
    """List all notifications, newest first."""
    with session.connect() as client:
        session.show_page(client.alarms.inbox(**query), ("at", "title", "count", "id"))


for _group in (rule, silence, channel):
    alarm.add_command(_group)
