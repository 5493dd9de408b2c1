"""`mqgate team`: teams that own topics, producers and groups."""

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import given, name
from mqgate.client import every
from mqgate.client.requests import delete as delete_call
from mqgate.client.requests import put

__all__ = ["team"]

_COLUMNS = ("name", "description", "members", "createdAt")
_description_option = click.option("--description", help="What the team is responsible for.")


@click.group()
def team() -> None:
    """Create, change and delete teams, and their members."""


@team.command(epilog=examples('mqgate team create payments --description "Invoices and refunds"'))
@click.argument("team_name", metavar="TEAM", type=name)
@_description_option
@with_session
def create(session: Session, team_name: str, description: str | None) -> None:
    """Create TEAM."""
    with session.connect() as client:
        session.show(client.teams.create(team_name, given(description=description)))


@team.command()
@click.argument("team_name", metavar="TEAM", type=name)
@_description_option
@with_session
def update(session: Session, team_name: str, description: str | None) -> None:
    """Change the existing TEAM."""
    with session.connect() as client:
        client.teams.get(team_name)
        session.show(client.teams.put(team_name, given(description=description)))


@team.command()
@click.argument("team_name", metavar="TEAM", type=name)
@with_session
def show(session: Session, team_name: str) -> None:
    """Show TEAM and its members."""
    with session.connect() as client:
        session.show(client.teams.get(team_name))


@team.command("list")
@with_session
def list_(session: Session) -> None:
    """List all teams."""
    with session.connect() as client:
        session.show_list(list(every(client.teams.list)), _COLUMNS)


@team.command()
@click.argument("team_name", metavar="TEAM", type=name)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_session
def delete(session: Session, team_name: str, yes: bool) -> None:
    """Delete TEAM. It must have no members and own no entries."""
    if not yes:
        click.confirm(f"Delete team {team_name}?", abort=True)
    with session.connect() as client:
        session.confirm(client.teams.delete(team_name), f"team {team_name} deleted")


@team.command("add-member", epilog=examples("mqgate team add-member payments ada"))
@click.argument("team_name", metavar="TEAM", type=name)
@click.argument("account", type=name)
@with_session
def add_member(session: Session, team_name: str, account: str) -> None:
    """Add ACCOUNT to TEAM."""
    with session.connect() as client:
        response = client.call(put({}, "teams", team_name, "members", account))
    session.confirm(response, f"account {account} added to team {team_name}")


@team.command("remove-member")
@click.argument("team_name", metavar="TEAM", type=name)
@click.argument("account", type=name)
@with_session
def remove_member(session: Session, team_name: str, account: str) -> None:
    """Remove ACCOUNT from TEAM."""
    with session.connect() as client:
        response = client.call(delete_call("teams", team_name, "members", account))
    session.confirm(response, f"account {account} removed from team {team_name}")
