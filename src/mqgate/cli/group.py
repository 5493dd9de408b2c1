"""`mqgate group`: groups that consume a topic, and commands to operate them."""

from typing import Any

import click

from mqgate.cli.dead_letters import dead_letters
from mqgate.cli.operate import clients, lag, pause, resume, seek
from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import LIFTED, backoff, duration, given, instant, maybe, name, rate_limit
from mqgate.client import every

__all__ = ["group"]

_COLUMNS = ("name", "topic", "mode", "visibility", "maxAttempts", "onPoison", "rateLimit", "paused")
_SETTINGS = (
    click.option("--visibility", type=duration, metavar="DURATION", help="Length of a lease: 30s, 15m."),
    click.option("--max-attempts", type=int, help="Number of deliveries before a message is dead-lettered."),
    click.option(
        "--backoff",
        type=backoff,
        metavar="BACKOFF",
        help="Delays after failed attempts: 1s,5s,1m (the last one repeats), or an exponential curve, any part of "
        "initial=1s,factor=2,max=10m,jitter=0.2.",
    ),
    click.option(
        "--on-poison",
        type=click.Choice(["dead", "block"]),
        help="Dead-letter an exhausted message, or block its queue (queue and broadcast mode).",
    ),
    click.option("--filter-tag", "tags", multiple=True, help="Only messages with this tag; repeatable (message mode)."),
    click.option("--no-filter", is_flag=True, help="Remove the filter (message mode)."),
    click.option("--max-in-flight", type=int, help="Maximum number of leased messages (message mode)."),
    click.option(
        "--rate-limit",
        type=maybe(rate_limit),
        metavar="RATE[:BURST]|none",
        help="Messages per second, and the burst size (default: the messages of one second).",
    ),
    click.option(
        "--client-ttl", type=duration, metavar="DURATION", help="Delete idle clients after this time (broadcast)."
    ),
)


@click.group(commands=[lag, clients, seek, pause, resume, dead_letters])
def group() -> None:
    """Create, change, show and operate groups."""


def _settings(command: Any) -> Any:
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


def _given(*, tags: tuple[str, ...], no_filter: bool, **options: Any) -> dict[str, Any]:
    if tags and no_filter:
        raise click.UsageError("provide either --filter-tag or --no-filter")
    tag_filter = {"tags": list(tags)} if tags else LIFTED if no_filter else None
    return given(filter=tag_filter, **options)


@group.command(
    epilog=examples(
        "mqgate group create billing --topic orders",
        "mqgate group create billing --topic orders --backoff 1s,10s,1m --max-attempts 5",
        "mqgate group create parcels --topic orders --filter-tag paid --filter-tag packed --ordered",
        "mqgate group create ledger --topic orders --mode queue --visibility 2m",
        "mqgate group create caches --topic orders --mode broadcast --client-ttl 2h",
    )
)
@click.argument("group_name", metavar="GROUP", type=name)
@click.option("--topic", required=True, help="Topic that the group consumes; cannot be changed.")
@click.option(
    "--mode",
    type=click.Choice(["message", "queue", "broadcast"]),
    help="Delivery mode (default message); cannot be changed.",
)
@click.option(
    "--start",
    type=instant,
    metavar="earliest|latest|INSTANT",
    help="Start position (default earliest; broadcast: latest); cannot be changed.",
)
@click.option(
    "--ordered",
    is_flag=True,
    default=None,
    help="Keep the order of each message key (message mode); cannot be changed.",
)
@_settings
@with_session
def create(session: Session, /, group_name: str, **options: Any) -> None:
    """Create GROUP. If it exists, it is not changed; see update."""
    with session.connect() as client:
        session.show(client.groups.create(group_name, _given(**options)))


@group.command(
    epilog=examples(
        "mqgate group update billing --visibility 2m --rate-limit none",
        "mqgate group update billing --backoff initial=5s,max=1h",
    )
)
@click.argument("group_name", metavar="GROUP", type=name)
@_settings
@with_session
def update(session: Session, /, group_name: str, **options: Any) -> None:
    """Change the given settings of the existing GROUP."""
    with session.connect() as client:
        session.show(client.groups.patch(group_name, _given(**options)))


@group.command()
@click.argument("group_name", metavar="GROUP", type=name)
@with_session
def show(session: Session, group_name: str) -> None:
    """Show the settings of GROUP."""
    with session.connect() as client:
        session.show(client.groups.get(group_name))


@group.command("list")
@with_session
def list_(session: Session) -> None:
    """List all groups."""
    with session.connect() as client:
        session.show_list(list(every(client.groups.list)), _COLUMNS)


@group.command()
@click.argument("group_name", metavar="GROUP", type=name)
@with_session
def delete(session: Session, group_name: str) -> None:
    """Delete GROUP with its offsets, leases and dead letters. The messages of its topic are kept."""
    with session.connect() as client:
        session.confirm(client.groups.delete(group_name), f"group {group_name} deleted")
