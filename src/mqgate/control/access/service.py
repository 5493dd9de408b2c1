"""Authenticate and authorise callers."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from mqgate.control.access.accounts import Accounts
from mqgate.control.access.keys import ApiKeys, is_valid, parse_key
from mqgate.control.access.model import OPEN, Principal, is_open
from mqgate.control.access.permissions import KINDS, Grant
from mqgate.control.access.sessions import TOKEN_PREFIX, Sessions
from mqgate.control.registry.directory import CachedDirectory
from mqgate.core.entries import ApiKey
from mqgate.core.errors import Forbidden, Unauthorized

__all__ = ["Access", "Credentials"]


class Credentials(NamedTuple):
    """The services that manage credentials."""

    keys: ApiKeys
    accounts: Accounts
    sessions: Sessions


class Access:
    """Authentication and authorisation of every request."""

    def __init__(
        self,
        directory: CachedDirectory,
        sessions: Sessions,
        clock: Callable[[], datetime],
        *,
        may_be_open: bool,
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._sessions = sessions
        self._clock = clock
        self._may_be_open = may_be_open
        self._catch_up = catch_up
        self._principals: dict[str, tuple[ApiKey, Principal]] = {}

    @property
    def is_open(self) -> bool:
        """Whether there is neither a key nor an account."""
        return is_open(self._directory.snapshot)

    @property
    def is_for_all(self) -> bool:
        """Whether callers need no credentials: there are none, and the server listens on loopback."""
        return self._may_be_open and is_open(self._directory.snapshot)

    async def authenticate(self, authorization: str | None) -> Principal:
        """Return the caller that the Authorization header names. Raise Unauthorized if it is not valid."""
        if self.is_for_all:
            return OPEN
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("Send the header Authorization: Bearer <key>.")
        if token.startswith(TOKEN_PREFIX):
            return await self._sessions.authenticate(token.strip())
        key_id, secret = parse_key(token)
        if key_id not in self._directory.snapshot.keys:
            # Another gateway may have created it.
            await self._catch_up()
        key = self._directory.snapshot.keys.get(key_id)
        if key is None or not is_valid(key, secret, self._clock()):
            raise Unauthorized("The key is unknown, deleted or expired.")
        made = self._principals.get(key_id)
        # Entries are replaced when they change, so the same object means the same permissions.
        return made[1] if made is not None and made[0] is key else self._remember(key)

    def _remember(self, key: ApiKey) -> Principal:
        """Return the caller of a key, and keep it: building one takes as long as checking the key."""
        if len(self._principals) > len(self._directory.snapshot.keys):
            self._principals.clear()
        principal = Principal(
            name=f"key {key.id}",
            kind=key.role or ("group" if key.producer is None else "producer"),
            producer=key.producer,
            group=key.group,
            key_id=key.id,
        )
        self._principals[key.id] = key, principal
        return principal

    async def authenticate_session(self, token: str) -> Principal:
        """Return the caller of a session. Raise Unauthorized if it is over."""
        return OPEN if self.is_for_all else await self._sessions.authenticate(token)

    def permit(self, principal: Principal, grants: Mapping[str, Grant], parameters: Mapping[str, str]) -> Grant:
        """Return the grant of a caller for an operation with these path parameters. Raise Forbidden if it has none.

        A person's ownership of the entry in the path is checked by `check_own`.
        """
        grant = grants.get(principal.kind)
        if grant is Grant.ALL:
            return grant
        if grant is None:
            allowed = " or ".join(kind for kind in KINDS if kind in grants)
            raise Forbidden(f"This operation requires {allowed}. {principal.name} is of kind {principal.kind}.")
        if grant is Grant.OWN and principal.group is not None and parameters.get("group") != principal.group:
            raise Forbidden(f"This key belongs to group {principal.group}. Use a key of the other group.")
        return grant

    async def check_own(self, principal: Principal, parameters: Mapping[str, str]) -> None:
        """Raise Forbidden if the path names an entry that no team of the person owns."""
        for kind in parameters.keys() & {"topic", "producer", "group"}:
            name = parameters[kind]
            if name not in getattr(self._directory.snapshot, f"{kind}s"):
                await self._catch_up()
            if not principal.owns(getattr(self._directory.snapshot, f"{kind}s").get(name)):
                raise Forbidden(f"No team of {principal.name} owns {kind} {name}.")
