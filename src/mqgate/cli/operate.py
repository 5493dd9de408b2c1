"""What an operator asks of a group and does to it."""

from functools import partial

import click

from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import instant, name, offset
from mqgate.client import every

__all__ = ["clients", "lag", "pause", "resume", "seek"]

_LAG_COLUMNS = (
    "queue",
    "min",
    "max",
    "committed",
    "cursor",
    "ready",
    "leased",
    "waiting",
    "attempts",
    "blocked",
    "lockedUntil",
    "lastClient",
    "lastConsumedAt",
)
_group_argument = click.argument("group_name", metavar="GROUP", type=name)
_reason_option = click.option("--reason", help="Why; kept in the audit.")


@click.command(
    epilog=examples(
        "mqgate group lag billing",
        "mqgate group lag caches --client-id web-1",
        "mqgate --json group lag billing | jq .lag",
    )
)
@_group_argument
@click.option("--client-id", help="Whose lag; a broadcast group has one for each client.")
@with_session
def lag(session: Session, group_name: str, client_id: str | None) -> None:
    """Show how far GROUP is behind, in all and queue by queue."""
    with session.connect() as client:
        session.show(client.lag(group_name, client_id=client_id), _LAG_COLUMNS)


@click.command()
@_group_argument
@with_session
def clients(session: Session, group_name: str) -> None:
    """Show who polled GROUP, when, from where, and what they hold."""
    with session.connect() as client:
        session.show({"items": list(every(partial(client.clients, group_name)))})


@click.command(
    epilog=examples(
        "mqgate group seek billing --to earliest --dry-run",
        'mqgate group seek billing --to 2030-01-31T12:00:00Z --reason "bug 17, charge again"',
        "mqgate group seek billing --offset local:0=100 --offset local:1=90",
    )
)
@_group_argument
@click.option("--to", type=instant, metavar="earliest|latest|INSTANT", help="Where all queues go.")
@click.option(
    "--offset",
    "offsets",
    type=offset,
    multiple=True,
    metavar="QUEUE=OFFSET",
    help="Where one queue goes, like local:3=17; repeatable.",
)
@click.option("--client-id", help="Which client of a broadcast group.")
@click.option("--dry-run", is_flag=True, help="Say what would happen and change nothing.")
@_reason_option
@with_session
def seek(
    session: Session,
    /,
    *,
    group_name: str,
    to: int | str | None,
    offsets: tuple[tuple[str, int], ...],
    client_id: str | None,
    dry_run: bool,
    reason: str | None,
) -> None:
    """Move GROUP to another place in its topic. Leases given before mean nothing afterwards."""
    if bool(to) == bool(offsets):
        raise click.UsageError("give either --to or --offset")
    with session.connect() as client:
        session.show(client.seek(group_name, to or dict(offsets), client_id=client_id, dry_run=dry_run, reason=reason))
    if dry_run:
        note("a dry run: nothing was changed")


@click.command()
@_group_argument
@_reason_option
@with_session
def pause(session: Session, group_name: str, reason: str | None) -> None:
    """Stop delivering to GROUP; what is out can still be acknowledged."""
    with session.connect() as client:
        session.confirm(client.pause(group_name, reason=reason), f"group {group_name} paused")


@click.command()
@_group_argument
@_reason_option
@with_session
def resume(session: Session, group_name: str, reason: str | None) -> None:
    """Deliver to GROUP again."""
    with session.connect() as client:
        session.confirm(client.resume(group_name, reason=reason), f"group {group_name} resumed")
