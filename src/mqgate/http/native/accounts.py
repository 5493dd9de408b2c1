"""Handlers for accounts and teams."""

from typing import Literal

import msgspec
from msgspec import Struct

from mqgate.control.access.accounts import Accounts, AccountSpec
from mqgate.control.access.sessions import Sessions
from mqgate.core.entries import Account, Team
from mqgate.core.errors import AccountNotFound, TeamNotFound
from mqgate.core.times import format_instant
from mqgate.http.conditions import must_be_new
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode
from mqgate.http.native.registry import ListQuery, page
from mqgate.http.operation import describe
from mqgate.ports.directory import Directory

__all__ = ["AccountsApi"]


class AccountIn(Struct, rename="camel", forbid_unknown_fields=True):
    role: Literal["viewer", "member", "operator", "admin"] | None = None
    teams: list[str] | None = None
    password: str | None = None
    disabled: bool | None = None


class AccountOut(Struct, rename="camel"):
    name: str
    role: str
    teams: list[str]
    disabled: bool
    created_at: str


class AccountsOut(Struct):
    items: list[AccountOut]
    next: str | None


class TeamIn(Struct, rename="camel", forbid_unknown_fields=True):
    description: str | None = None


class TeamOut(Struct, rename="camel"):
    name: str
    description: str
    members: list[str]
    created_at: str


class TeamsOut(Struct):
    items: list[TeamOut]
    next: str | None


_account_in = msgspec.json.Decoder(AccountIn)
_team_in = msgspec.json.Decoder(TeamIn)


class AccountsApi:
    def __init__(self, accounts: Accounts, sessions: Sessions, directory: Directory) -> None:
        self._accounts = accounts
        self._sessions = sessions
        self._directory = directory

    @describe(
        "putAccount",
        "access",
        request_type=AccountIn,
        responses={200: AccountOut, 201: AccountOut},
        errors=(404, 409, 412, 507),
    )
    async def put_account(self, request: Request) -> Response:
        """Create or change an account."""
        given = decode(request.body, _account_in)
        spec = AccountSpec(
            role=given.role,
            teams=None if given.teams is None else frozenset(given.teams),
            password=given.password,
            is_disabled=given.disabled,
        )
        account, is_new = await self._accounts.put(
            request.path("account"), spec, request.principal.name, only_new=must_be_new(request)
        )
        return reply(201 if is_new else 200, _account_out(account))

    @describe("getAccount", "access", responses={200: AccountOut}, errors=(404,))
    async def get_account(self, request: Request) -> Response:
        """Show an account."""
        name = request.path("account")
        account = self._directory.snapshot.accounts.get(name)
        if account is None:
            raise AccountNotFound(f"Account {name} does not exist.")
        return reply(200, _account_out(account))

    @describe("listAccounts", "access", query=ListQuery, responses={200: AccountsOut})
    async def list_accounts(self, request: Request) -> Response:
        """List accounts."""
        return page(request, self._directory.snapshot.accounts, _account_out)

    @describe("deleteAccount", "access", responses={204: None}, errors=(404, 409, 507))
    async def delete_account(self, request: Request) -> Response:
        """Delete an account and end its sessions."""
        await self._accounts.delete(request.path("account"), request.principal.name)
        return Response(204)

    @describe("endSessions", "access", responses={204: None}, errors=(404, 507))
    async def end_sessions(self, request: Request) -> Response:
        """Sign an account out everywhere."""
        name = request.path("account")
        if name not in self._directory.snapshot.accounts:
            raise AccountNotFound(f"Account {name} does not exist.")
        await self._sessions.sign_out_everywhere(name, request.principal.name)
        return Response(204)

    @describe(
        "putTeam",
        "access",
        request_type=TeamIn,
        is_body_optional=True,
        responses={200: TeamOut, 201: TeamOut},
        errors=(409, 412, 507),
    )
    async def put_team(self, request: Request) -> Response:
        """Create or change a team."""
        given = decode(request.body, _team_in) if request.body else TeamIn()
        team, is_new = await self._accounts.put_team(
            request.path("team"), given.description, request.principal.name, only_new=must_be_new(request)
        )
        return reply(201 if is_new else 200, self._team_out(team))

    @describe("getTeam", "access", responses={200: TeamOut}, errors=(404,))
    async def get_team(self, request: Request) -> Response:
        """Show a team and its members."""
        name = request.path("team")
        team = self._directory.snapshot.teams.get(name)
        if team is None:
            raise TeamNotFound(f"Team {name} does not exist.")
        return reply(200, self._team_out(team))

    @describe("listTeams", "access", query=ListQuery, responses={200: TeamsOut})
    async def list_teams(self, request: Request) -> Response:
        """List teams."""
        return page(request, self._directory.snapshot.teams, self._team_out)

    @describe("deleteTeam", "access", responses={204: None}, errors=(404, 409, 507))
    async def delete_team(self, request: Request) -> Response:
        """Delete a team without members and entries."""
        await self._accounts.delete_team(request.path("team"), request.principal.name)
        return Response(204)

    @describe("addMember", "access", responses={204: None}, errors=(404, 409, 507))
    async def add_member(self, request: Request) -> Response:
        """Add an account to a team."""
        return await self._change_member(request, is_member=True)

    @describe("removeMember", "access", responses={204: None}, errors=(404, 409, 507))
    async def remove_member(self, request: Request) -> Response:
        """Remove an account from a team."""
        return await self._change_member(request, is_member=False)

    async def _change_member(self, request: Request, *, is_member: bool) -> Response:
        await self._accounts.change_member(
            request.path("team"), request.path("account"), request.principal.name, is_member=is_member
        )
        return Response(204)

    def _team_out(self, team: Team) -> TeamOut:
        accounts = self._directory.snapshot.accounts.values()
        members = sorted(account.name for account in accounts if team.name in account.teams)
        return TeamOut(team.name, team.description, members, format_instant(team.created_at))


def _account_out(account: Account) -> AccountOut:
    return AccountOut(
        account.name, account.role, sorted(account.teams), account.is_disabled, format_instant(account.created_at)
    )
