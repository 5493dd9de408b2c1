"""`mqgate key`: who may call the gateway."""

from typing import Any

import click

from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import given, instant, name
from mqgate.client import every

__all__ = ["key"]

_COLUMNS = ("id", "producer", "group", "role", "createdAt", "expiresAt")


@click.group()
def key() -> None:
    """Create, list and delete API keys.

    As soon as one key exists every call needs one, so create an admin's first.
    """


@key.command(
    epilog=examples(
        "mqgate key create --admin",
        "mqgate key create --producer shop",
        "export MQGATE_KEY=$(mqgate --json key create --admin | jq -r .key)",
    )
)
@click.option("--producer", help="May publish to this producer's topic.")
@click.option("--group", help="May receive, settle and read the lag of this group.")
@click.option("--admin", is_flag=True, help="May do everything.")
@click.option("--expires-at", type=instant, metavar="INSTANT", help="When it ends, like 2030-01-31T12:00:00Z.")
@with_session
def create(session: Session, /, admin: bool, **options: Any) -> None:
    """Create a key for a producer, a group or an admin. It is shown only once."""
    grant = given(role="admin" if admin else None, **options)
    if len(grant.keys() & {"role", "producer", "group"}) != 1:
        raise click.UsageError("give exactly one of --producer, --group, --admin")
    with session.connect() as client:
        session.show(client.keys.create(grant))
    note("keep the key now: it is not shown again, and from now on every call needs one")


@key.command("list")
@with_session
def list_(session: Session) -> None:
    """List all keys, by what they open; the keys themselves are not kept."""
    with session.connect() as client:
        session.show_list(list(every(client.keys.list)), _COLUMNS)


@key.command()
@click.argument("key_id", metavar="ID", type=name)
@with_session
def delete(session: Session, key_id: str) -> None:
    """Delete the key ID: it opens nothing from now on. Without any key left the gateway is open."""
    with session.connect() as client:
        session.confirm(client.keys.delete(key_id), f"key {key_id} deleted")
