"""`mqgate key`: API keys of the gateway."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mqgate.cli.local import LOCAL_ACTOR, run_locally, with_local
from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import given, instant, name
from mqgate.client import every
from mqgate.core.times import parse_instant
from mqgate.settings import Settings

if TYPE_CHECKING:
    from mqgate.control.access.service import Credentials
    from mqgate.core.entries import ApiKey

__all__ = ["key"]

_ROLES = ("metrics", "viewer", "reader", "operator", "admin")
_COLUMNS = ("id", "name", "owner", "producer", "group", "role", "createdAt", "expiresAt")


@click.group()
def key() -> None:
    """Create, list and delete API keys.

    As soon as a key exists, every call requires one. The first key must be an admin key.
    """


@key.command(
    epilog=examples(
        "mqgate key create --admin",
        "mqgate key create --admin --local --data-dir ./data",
        "mqgate key create --producer shop",
        "export MQGATE_KEY=$(mqgate --json key create --admin | jq -r .key)",
    )
)
@click.option("--producer", help="Allow publishing as this producer.")
@click.option("--group", help="Allow receiving and settling as this group, and redriving its dead letters.")
@click.option("--role", type=click.Choice(_ROLES), help="Allow what the role allows on all entries.")
@click.option("--admin", is_flag=True, help="Allow everything: the same as --role admin.")
@click.option("--name", help="Text that tells keys apart.")
@click.option("--owner", help="Account or team that is responsible for the key.")
@click.option("--expires-at", type=instant, metavar="INSTANT", help="Expiry of the key, such as 2030-01-31T12:00:00Z.")
@with_local
@with_session
def create(session: Session, /, admin: bool, role: str | None, local: Settings | None, **options: Any) -> None:
    """Create a key for a producer, a group or a role. The key is shown only once."""
    if admin and role is not None:
        raise click.UsageError("--admin is the same as --role admin: provide one of them")
    grant = given(role="admin" if admin else role, **options)
    if len(grant.keys() & {"role", "producer", "group"}) != 1:
        raise click.UsageError("provide exactly one of --producer, --group, --role, --admin")
    if local is not None:
        session.show(_create_locally(local, grant))
    else:
        with session.connect() as client:
            session.show(client.keys.create(grant))
    note("store the key now: it is not shown again, and every call requires a key from now on")


def _create_locally(settings: Settings, grant: Mapping[str, Any]) -> Mapping[str, Any]:
    from mqgate.control.access.keys import KeySpec  # noqa: PLC0415 - the other commands need no server package

    known = {name: grant.get(name) for name in ("producer", "group", "role", "name", "owner")}
    expires_at = parse_instant(grant["expiresAt"], "expiresAt") if "expiresAt" in grant else None

    async def create_key(credentials: "Credentials") -> "tuple[ApiKey, str]":
        return await credentials.keys.create(KeySpec(**known, expires_at=expires_at), LOCAL_ACTOR)

    created, text = run_locally(settings, create_key)
    return {"id": created.id, "key": text}


@key.command("list")
@with_session
def list_(session: Session) -> None:
    """List the grants of all keys. The gateway does not store the keys themselves."""
    with session.connect() as client:
        session.show_list(list(every(client.keys.list)), _COLUMNS)


@key.command()
@click.argument("key_id", metavar="ID", type=name)
@with_session
def delete(session: Session, key_id: str) -> None:
    """Delete the key ID. Without keys, the gateway accepts every caller."""
    with session.connect() as client:
        session.confirm(client.keys.delete(key_id), f"key {key_id} deleted")
