"""`mqgate user`: accounts of people, and their sessions."""

import sys
from typing import TYPE_CHECKING, Any

import click

from mqgate.cli.local import LOCAL_ACTOR, run_locally, with_local
from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import given, name
from mqgate.client import every
from mqgate.client.requests import delete as delete_call
from mqgate.client.requests import post
from mqgate.settings import Settings

if TYPE_CHECKING:
    from mqgate.control.access.service import Credentials

__all__ = ["user"]

_ROLES = ("viewer", "member", "operator", "admin")
_COLUMNS = ("name", "role", "teams", "disabled", "createdAt")
_role_option = click.option("--role", type=click.Choice(_ROLES), help="Role of the account.")
_team_option = click.option("--team", "teams", multiple=True, type=name, help="Team of the account; repeatable.")
_stdin_option = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@click.group()
def user() -> None:
    """Create, change and delete accounts; sign in and out.

    As soon as an account exists, every call requires an account or a key. The first account must be an admin.
    """


@user.command(
    epilog=examples(
        "mqgate user create ada --admin --local",
        "mqgate user create bob --team payments --password-stdin < password.txt",
    )
)
@click.argument("account", type=name)
@_role_option
@click.option("--admin", is_flag=True, help="The same as --role admin.")
@_team_option
@_stdin_option
@with_local
@with_session
def create(
    session: Session,
    /,
    account: str,
    role: str | None,
    admin: bool,
    teams: tuple[str, ...],
    password_stdin: bool,
    local: Settings | None,
) -> None:
    """Create ACCOUNT (default role: member). The password is asked for."""
    if admin and role is not None:
        raise click.UsageError("--admin is the same as --role admin: provide one of them")
    body = given(role="admin" if admin else role, teams=list(teams) or None, password=_password(password_stdin))
    if local is not None:
        _create_locally(local, account, body)
    else:
        with session.connect() as client:
            client.accounts.create(account, body)
    session.confirm({"name": account}, f"account {account} created")


def _create_locally(settings: Settings, account: str, body: dict[str, Any]) -> None:
    from mqgate.control.access.accounts import AccountSpec  # noqa: PLC0415 - the other commands need no server package

    spec = AccountSpec(role=body.get("role"), teams=frozenset(body.get("teams", ())), password=body["password"])

    async def create_account(credentials: "Credentials") -> None:
        await credentials.accounts.put(account, spec, LOCAL_ACTOR, only_new=True)

    run_locally(settings, create_account)


@user.command(epilog=examples("mqgate user update bob --role operator", "mqgate user update bob --disable"))
@click.argument("account", type=name)
@_role_option
@_team_option
@click.option("--no-teams", is_flag=True, help="Remove the account from all teams.")
@click.option("--disable/--enable", "disabled", default=None, help="Whether the account may sign in.")
@click.option("--password", "has_password", is_flag=True, help="Set a new password, which is asked for.")
@_stdin_option
@with_session
def update(
    session: Session,
    /,
    account: str,
    role: str | None,
    teams: tuple[str, ...],
    no_teams: bool,
    disabled: bool | None,
    has_password: bool,
    password_stdin: bool,
) -> None:
    """Change the given settings of the existing ACCOUNT. --team replaces all its teams."""
    password = _password(password_stdin) if has_password or password_stdin else None
    chosen = [] if no_teams else list(teams) or None
    with session.connect() as client:
        client.accounts.get(account)
        session.show(client.accounts.put(account, given(role=role, teams=chosen, disabled=disabled, password=password)))


@user.command()
@click.argument("account", type=name)
@with_session
def show(session: Session, account: str) -> None:
    """Show ACCOUNT."""
    with session.connect() as client:
        session.show(client.accounts.get(account))


@user.command("list")
@with_session
def list_(session: Session) -> None:
    """List all accounts."""
    with session.connect() as client:
        session.show_list(list(every(client.accounts.list)), _COLUMNS)


@user.command()
@click.argument("account", type=name)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_session
def delete(session: Session, account: str, yes: bool) -> None:
    """Delete ACCOUNT and end its sessions."""
    if not yes:
        click.confirm(f"Delete account {account}?", abort=True)
    with session.connect() as client:
        session.confirm(client.accounts.delete(account), f"account {account} deleted")


@user.command("sign-in", epilog=examples("export MQGATE_KEY=$(mqgate --json user sign-in ada | jq -r .token)"))
@click.argument("account", type=name)
@_stdin_option
@with_session
def sign_in(session: Session, account: str, password_stdin: bool) -> None:
    """Sign in as ACCOUNT and print a token, which is used like a key until the session ends."""
    password = _password(password_stdin, is_new=False)
    with session.connect() as client:
        session.show(client.call(post({"account": account, "password": password}, "sessions", is_repeatable=False)))


@user.command("sign-out")
@click.option("--everywhere", is_flag=True, help="End all sessions of the account.")
@with_session
def sign_out(session: Session, everywhere: bool) -> None:
    """End the session whose token is the key of this command."""
    target = ("sessions",) if everywhere else ("sessions", "current")
    with session.connect() as client:
        session.confirm(client.call(delete_call(*target)), "signed out")


def _password(is_stdin: bool, *, is_new: bool = True) -> str:
    if is_stdin:
        return sys.stdin.readline().rstrip("\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=is_new, err=True))
