"""Create, change and delete accounts and teams."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from mqgate.control.access.changes import Change, EntryChanges
from mqgate.control.access.model import check_has_admin, has_admin, is_open
from mqgate.control.access.passwords import Passwords, check_password
from mqgate.control.access.permissions import ACCOUNT_ROLES
from mqgate.control.access.throttle import count_attempt, sign_in_slots
from mqgate.core.entries import Account, Group, Producer, Snapshot, Team, Topic
from mqgate.core.errors import (
    AccountNotFound,
    AlreadyExists,
    InvalidValue,
    LastAdmin,
    SignInFailed,
    TeamInUse,
    TeamNotFound,
)
from mqgate.core.names import check_name
from mqgate.ports.session_store import SessionStore

__all__ = ["AccountSpec", "Accounts"]

_MAX_DESCRIPTION = 1_000
_T = TypeVar("_T", Account, Team)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSpec:
    """Settings of an account. None keeps the stored value."""

    role: str | None = None
    teams: frozenset[str] | None = None
    password: str | None = None
    is_disabled: bool | None = None


class Accounts:
    def __init__(
        self,
        changes: EntryChanges,
        sessions: SessionStore,
        passwords: Passwords,
        clock: Callable[[], datetime],
        *,
        may_be_open: bool,
    ) -> None:
        self._changes = changes
        self._sessions = sessions
        self._passwords = passwords
        self._clock = clock
        self._may_be_open = may_be_open

    async def put(self, name: str, spec: AccountSpec, actor: str, *, only_new: bool = False) -> tuple[Account, bool]:
        """Create or change an account. Return it, and whether it is new. A new password ends all its sessions."""
        check_name(name, "account")
        hashed = None if spec.password is None else await self._passwords.hash(check_password(spec.password))

        def decide(seen: Snapshot) -> Change:
            old = seen.accounts.get(name)
            if old is not None and only_new:
                raise AlreadyExists(f"Account {name} exists. Choose another name.")
            account = self._decide(name, spec, old, hashed)
            _check_teams(account.teams, seen)
            _check_admins(seen, {**seen.accounts, name: account})
            return Change("create" if old is None else "change", account)

        action, account = await self._changes.apply(decide, actor)
        assert isinstance(account, Account)  # noqa: S101 - for the type checker
        if action == "change" and (hashed is not None or account.is_disabled):
            await self._sessions.remove(name)
        return account, action == "create"

    def _decide(self, name: str, spec: AccountSpec, old: Account | None, hashed: str | None) -> Account:
        role = spec.role or (old.role if old else "member")
        if role not in ACCOUNT_ROLES:
            raise InvalidValue(f"role must be one of {', '.join(ACCOUNT_ROLES)}", field="role")
        if old is None and hashed is None:
            raise InvalidValue("password is required for a new account", field="password")
        base = old or Account(
            name=name,
            role=role,
            teams=frozenset(),
            password_hash="",
            is_disabled=False,
            created_at=self._clock(),
        )
        return replace(
            base,
            role=role,
            teams=base.teams if spec.teams is None else spec.teams,
            password_hash=hashed or base.password_hash,
            is_disabled=base.is_disabled if spec.is_disabled is None else spec.is_disabled,
        )

    async def change_password(self, name: str, current: str, new: str, *, session: str, address: str) -> None:
        """Change the password of a person who knows the current one, and end the other sessions."""

        def read(snapshot: Snapshot) -> Account:
            return _found(snapshot.accounts.get(name), AccountNotFound, "account", name)

        account = read(await self._changes.snapshot())
        # Throttled like a sign-in: otherwise a stolen session could guess the password.
        slots = sign_in_slots(name, address)
        await count_attempt(self._sessions, slots, self._clock())
        if not await self._passwords.verify(account.password_hash, current):
            raise SignInFailed("The current password is wrong.", field="current")
        await self._sessions.succeed(cleared=slots[0], undone=slots[1])
        hashed = await self._passwords.hash(check_password(new, "new"))
        await self._changes.apply(
            lambda snapshot: Change("change", replace(read(snapshot), password_hash=hashed)), f"account {name}"
        )
        await self._sessions.remove(name, other_than=session)

    async def delete(self, name: str, actor: str) -> None:
        """Delete an account and end its sessions."""

        def decide(seen: Snapshot) -> Change:
            account = _found(seen.accounts.get(name), AccountNotFound, "account", name)
            rest = {other: found for other, found in seen.accounts.items() if other != name}
            if is_open(replace(seen, accounts=rest)) and not self._may_be_open:
                raise LastAdmin("The gateway listens on more than loopback. Create another admin first.")
            _check_admins(seen, rest)
            return Change("delete", account)

        await self._changes.apply(decide, actor)
        await self._sessions.remove(name)

    async def put_team(
        self, name: str, description: str | None, actor: str, *, only_new: bool = False
    ) -> tuple[Team, bool]:
        """Create or change a team. Return it, and whether it is new."""
        check_name(name, "team")
        if description is not None and len(description) > _MAX_DESCRIPTION:
            raise InvalidValue(f"description may have at most {_MAX_DESCRIPTION} characters", field="description")

        def decide(seen: Snapshot) -> Change:
            old = seen.teams.get(name)
            if old is not None and only_new:
                raise AlreadyExists(f"Team {name} exists. Choose another name.")
            base = old or Team(name=name, description="", created_at=self._clock())
            team = base if description is None else replace(base, description=description)
            return Change("create" if old is None else "change", team)

        action, team = await self._changes.apply(decide, actor)
        assert isinstance(team, Team)  # noqa: S101 - for the type checker
        return team, action == "create"

    async def delete_team(self, name: str, actor: str) -> None:
        """Delete a team that nothing belongs to."""

        def decide(seen: Snapshot) -> Change:
            team = _found(seen.teams.get(name), TeamNotFound, "team", name)
            entries: tuple[Topic | Producer | Group, ...] = (
                *seen.topics.values(),
                *seen.producers.values(),
                *seen.groups.values(),
            )
            users = [entry.name for entry in entries if entry.team == name]
            users += [account.name for account in seen.accounts.values() if name in account.teams]
            if users:
                raise TeamInUse(f"These belong to team {name}: {', '.join(sorted(users)[:10])}.", team=name)
            return Change("delete", team)

        await self._changes.apply(decide, actor)

    async def change_member(self, team: str, account: str, actor: str, *, is_member: bool) -> None:
        """Add an account to a team, or remove it."""

        def decide(seen: Snapshot) -> Change:
            _found(seen.teams.get(team), TeamNotFound, "team", team)
            found = _found(seen.accounts.get(account), AccountNotFound, "account", account)
            return Change("change", replace(found, teams=found.teams | {team} if is_member else found.teams - {team}))

        await self._changes.apply(decide, actor)


def _check_teams(teams: frozenset[str], seen: Snapshot) -> None:
    for team in sorted(teams - seen.teams.keys()):
        raise TeamNotFound(f"Team {team} does not exist. Use PUT /v1/teams/{team}.", field="teams")


def _check_admins(seen: Snapshot, accounts: dict[str, Account]) -> None:
    """Raise if the change would leave credentials, but nobody who can create others."""
    after = replace(seen, accounts=accounts)
    if is_open(after):
        return
    if has_admin(seen) and not has_admin(after):
        raise LastAdmin("Only an admin can create accounts. Create another admin first.")
    check_has_admin(after)


def _found(entry: _T | None, error: type[AccountNotFound | TeamNotFound], kind: str, name: str) -> _T:
    if entry is None:
        raise error(f"{kind.capitalize()} {name} does not exist. Use PUT /v1/{kind}s/{name}.", **{kind: name})
    return entry
