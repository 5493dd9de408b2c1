"""`mqgate group dead-letters`: messages that failed for the last time."""

from typing import Any

import click

from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import name

__all__ = ["dead_letters"]

_COLUMNS = ("id", "key", "origin", "deliveries", "firstAt", "lastAt", "reason")


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at the messages that failed for the last time."""


@dead_letters.command(
    "list",
    epilog=examples(
        "mqgate group dead-letters list billing",
        "mqgate group dead-letters list billing --from 2030-01-31T00:00:00Z --limit 20",
    ),
)
@click.argument("group_name", metavar="GROUP", type=name)
@click.option("--message-key", help="Only messages with this key.")
@click.option("--from", "since", metavar="INSTANT", help="Only those that died at this instant or later.")
@click.option("--to", "until", metavar="INSTANT", help="Only those that died before this instant.")
@click.option("--limit", type=int, help="How many to show; 100 unless given, at most 1000.")
@click.option("--cursor", help="Go on where an earlier list ended.")
@with_session
def list_(
    session: Session,
    /,
    group_name: str,
    message_key: str | None,
    since: str | None,
    until: str | None,
    **page: Any,
) -> None:
    """List the dead letters of GROUP."""
    query = {"key": message_key, "from": since, "to": until, **page}
    with session.connect() as client:
        answer = client.dead_letters(group_name, **query)
    session.show(answer, _COLUMNS)
    if answer.get("next") and not session.is_json:
        note(f"there are more: --cursor {answer['next']}")


@dead_letters.command()
@click.argument("group_name", metavar="GROUP", type=name)
@click.argument("message_id", metavar="ID", type=name)
@with_session
def show(session: Session, group_name: str, message_id: str) -> None:
    """Show the dead letter ID of GROUP, with its body."""
    with session.connect() as client:
        letter = client.dead_letter(group_name, message_id)
    if not session.is_json:
        # One value to a line, the message's too: nested they would share a line.
        letter |= letter.pop("message")
    session.show(letter)
