"""Commands that read the state of a group and change it."""

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
_reason_option = click.option("--reason", help="Reason, stored in the audit log.")


@click.command(
    epilog=examples(
        "mqgate group lag billing",
        "mqgate group lag caches --client-id web-1",
        "mqgate --json group lag billing | jq .lag",
    )
)
@_group_argument
@click.option("--client-id", help="Client id; a broadcast group has a lag for each client.")
@with_session
def lag(session: Session, group_name: str, client_id: str | None) -> None:
    """Show the lag of GROUP, in total and by queue."""
    with session.connect() as client:
        session.show(client.lag(group_name, client_id=client_id), _LAG_COLUMNS)


@click.command()
@_group_argument
@with_session
def clients(session: Session, group_name: str) -> None:
    """Show the clients that polled GROUP: when, from where, and their leases."""
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
@click.option("--to", type=instant, metavar="earliest|latest|INSTANT", help="New position of all queues.")
@click.option(
    "--offset",
    "offsets",
    type=offset,
    multiple=True,
    metavar="QUEUE=OFFSET",
    help="New offset of one queue, such as local:3=17; repeatable.",
)
@click.option("--client-id", help="Client of a broadcast group.")
@click.option("--dry-run", is_flag=True, help="Show the outcome without changing anything.")
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
    """Seek GROUP to another position of its topic. Existing leases become invalid."""
    if bool(to) == bool(offsets):
        raise click.UsageError("provide either --to or --offset")
    with session.connect() as client:
        session.show(client.seek(group_name, to or dict(offsets), client_id=client_id, dry_run=dry_run, reason=reason))
    if dry_run:
        note("dry run, nothing was changed")


@click.command()
@_group_argument
@_reason_option
@with_session
def pause(session: Session, group_name: str, reason: str | None) -> None:
    """Stop deliveries to GROUP. Leased messages can still be acknowledged."""
    with session.connect() as client:
        session.confirm(client.pause(group_name, reason=reason), f"group {group_name} paused")


@click.command()
@_group_argument
@_reason_option
@with_session
def resume(session: Session, group_name: str, reason: str | None) -> None:
    """Resume deliveries to GROUP."""
    with session.connect() as client:
        session.confirm(client.resume(group_name, reason=reason), f"group {group_name} resumed")
