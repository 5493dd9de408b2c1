"""`mqgate group dead-letters`: messages that exhausted their attempts."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from mqgate.cli.output import examples
from mqgate.cli.redrive_outcomes import RedriveOutcomes, in_slices
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import name
from mqgate.client import Client, every

__all__ = ["dead_letters"]

_COLUMNS = ("id", "key", "origin", "deliveries", "firstAt", "lastAt", "reason")
_group_argument = click.argument("group_name", metavar="GROUP", type=name)
_ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1, type=name)
_all_option = click.option("--all", "is_all", is_flag=True, help="All dead letters of the group.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Show the outcome without changing anything.")


@click.group("dead-letters")
def dead_letters() -> None:
    """List, redrive and purge the messages that exhausted their attempts."""


@dead_letters.command(
    "list",
    epilog=examples(
        "mqgate group dead-letters list billing",
        "mqgate group dead-letters list billing --from 2030-01-31T00:00:00Z --limit 20",
    ),
)
@_group_argument
@click.option("--message-key", "key", help="Only messages with this key.")
@click.option("--from", "since", metavar="INSTANT", help="Only messages dead-lettered at this instant or later.")
@click.option("--to", "until", metavar="INSTANT", help="Only messages dead-lettered before this instant.")
@click.option("--limit", type=int, help="Number of rows (default 100, at most 1000).")
@click.option("--cursor", help="Cursor of the previous page.")
@with_session
def list_(session: Session, /, group_name: str, **query: Any) -> None:
    """List the dead letters of GROUP, oldest first."""
    with session.connect() as client:
        session.show_page(client.dead_letters.list(group_name, **query), _COLUMNS)


@dead_letters.command()
@_group_argument
@click.argument("message_id", metavar="ID", type=name)
@with_session
def show(session: Session, group_name: str, message_id: str) -> None:
    """Show the dead letter ID of GROUP, with its body."""
    with session.connect() as client:
        session.show(client.dead_letters.get(group_name, message_id))


@dead_letters.command(
    epilog=examples(
        "mqgate group dead-letters redrive billing 01a1e2466d55b0ac2679239be0e0b4a3",
        "mqgate group dead-letters redrive billing --all --dry-run",
        "mqgate group dead-letters redrive billing --all --rate 10",
    )
)
@_group_argument
@_ids_argument
@_all_option
@click.option(
    "--rate",
    type=click.FloatRange(0, 1_000_000, min_open=True),
    metavar="RATE",
    help="Maximum number of messages per second; the command runs until the last one is redriven.",
)
@_dry_run_option
@with_session
def redrive(
    session: Session, group_name: str, ids: tuple[str, ...], is_all: bool, rate: float | None, dry_run: bool
) -> None:
    """Deliver the dead letters ID... again, to GROUP only, beginning at attempt 1.

    --all selects those that exist when the command starts. The exit code is 1 if an ID was not found.
    """
    _check_choice(ids, is_all)
    outcomes = RedriveOutcomes(session)
    with session.connect() as client:
        call = partial(client.dead_letters.redrive, group_name)
        if dry_run:
            outcomes.collect(_dry_run(call, ids))
        else:
            # Not `all` of the API in a loop: messages that fail again at once would be redriven without end.
            selected = ids or _all_ids(client, group_name)
            outcomes.collect(in_slices(partial(call, rate=rate), selected, rate))
    outcomes.show(dry_run=dry_run)


@dead_letters.command(
    epilog=examples(
        "mqgate group dead-letters purge billing 01a1e2466d55b0ac2679239be0e0b4a3",
        "mqgate group dead-letters purge billing --all --dry-run",
        "mqgate group dead-letters purge billing --all --yes",
    )
)
@_group_argument
@_ids_argument
@_all_option
@_dry_run_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation before all are deleted.")
@with_session
def purge(session: Session, group_name: str, ids: tuple[str, ...], is_all: bool, dry_run: bool, yes: bool) -> None:
    """Delete the dead letters ID... of GROUP permanently.

    --all asks for confirmation unless --yes is given. The exit code is 1 if an ID was not found.
    """
    _check_choice(ids, is_all)
    outcomes = RedriveOutcomes(session)
    with session.connect() as client:
        call = partial(client.dead_letters.purge, group_name)
        if dry_run:
            outcomes.collect(_dry_run(call, ids))
        elif ids:
            outcomes.collect(in_slices(call, ids))
        elif yes or _confirm_purge(client, group_name):
            outcomes.collect(_until_empty(call))
    outcomes.show(dry_run=dry_run)


def _check_choice(ids: tuple[str, ...], is_all: bool) -> None:
    if bool(ids) == is_all:
        raise click.UsageError("provide either message ids or --all")


def _dry_run(call: Any, ids: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    return in_slices(partial(call, dry_run=True), ids) if ids else iter([call(is_all=True, dry_run=True)])


def _all_ids(client: Client, group_name: str) -> Iterator[str]:
    page = partial(client.dead_letters.list, group_name, limit=1_000)
    return (letter["id"] for letter in every(page))


def _confirm_purge(client: Client, group_name: str) -> bool:
    """Ask for confirmation, and return whether there are dead letters. A refusal aborts the command."""
    preview = client.dead_letters.purge(group_name, is_all=True, dry_run=True)
    count = len(preview["results"])
    if count:
        number = f"more than {count}" if preview["more"] else str(count)
        click.confirm(f"Permanently delete all dead letters of {group_name} ({number})?", abort=True, err=True)
    return bool(count)


def _until_empty(call: Any) -> Iterator[dict[str, Any]]:
    has_more = True
    while has_more:
        response = call(is_all=True)
        has_more = response["more"]
        yield response
