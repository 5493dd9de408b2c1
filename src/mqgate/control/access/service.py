"""Create and delete API keys, and authenticate callers.

A key has the form `mqk_<id>_<secret>`. The id identifies the entry. The secret has 256 random bits, so that storing its
plain SHA-256 is safe.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from mqgate.control.access.model import OPEN, Principal
from mqgate.control.access.permissions import KEY_ROLES, KINDS, Grant
from mqgate.control.registry.directory import CachedDirectory
from mqgate.core.entries import ApiKey
from mqgate.core.errors import (
    FirstKeyNotAdmin,
    Forbidden,
    GroupNotFound,
    InvalidValue,
    KeyNotFound,
    LastKey,
    ProducerNotFound,
    Unauthorized,
)
from mqgate.ports.registry_store import AuditEntry, RegistryStore

_MAX_TEXT = 100


class Access:
    """API keys and authentication."""

    def __init__(
        self,
        store: RegistryStore,
        directory: CachedDirectory,
        clock: Callable[[], datetime],
        *,
        may_be_open: bool,
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._may_be_open = may_be_open
        self._catch_up = catch_up

    @property
    def is_open(self) -> bool:
        """Whether there is no key."""
        return not self._directory.snapshot.keys

    @property
    def is_for_all(self) -> bool:
        """Whether callers need no key: there is none, and the server listens on loopback."""
        return self._may_be_open and not self._directory.snapshot.keys

    async def authenticate(self, authorization: str | None) -> Principal:
        """Return the caller that the Authorization header names. Raise Unauthorized if the key is not valid."""
        if self.is_for_all:
            return OPEN
        keys = self._directory.snapshot.keys
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("Send the header Authorization: Bearer <key>.")
        key_id, _, secret = token.strip().removeprefix("mqk_").partition("_")
        if key_id not in keys:
            # Another gateway may have created it.
            await self._catch_up()
        key = self._directory.snapshot.keys.get(key_id)
        # Also compared if the key does not exist, so that the response time does not reveal it.
        is_right = hmac.compare_digest(_digest(secret), key.digest if key else _digest(""))
        if key is None or not is_right or (key.expires_at and key.expires_at <= self._clock()):
            raise Unauthorized("The key is unknown, deleted or expired.")
        return Principal(
            name=f"key {key.id}",
            kind=key.role or ("group" if key.producer is None else "producer"),
            producer=key.producer,
            group=key.group,
            key_id=key.id,
        )

    def permit(self, principal: Principal, grants: Mapping[str, Grant], parameters: Mapping[str, str]) -> Grant:
        """Return the grant of a caller for an operation with these path parameters. Raise Forbidden if it has none."""
        grant = grants.get(principal.kind)
        if grant is None:
            allowed = " or ".join(kind for kind in KINDS if kind in grants)
            raise Forbidden(f"{principal.name} is of kind {principal.kind}. This operation requires {allowed}.")
        if grant is Grant.OWN and principal.group is not None and parameters.get("group") != principal.group:
            raise Forbidden(f"This key belongs to group {principal.group}. Use a key of the other group.")
        return grant

    async def create(
        self,
        *,
        producer: str | None,
        group: str | None,
        role: str | None,
        name: str | None = None,
        owner: str | None = None,
        expires_at: datetime | None,
        actor: str,
    ) -> tuple[ApiKey, str]:
        """Create a key. Return it with its text, which is not stored."""
        snapshot = await self._directory.refresh()
        if sum(owner is not None for owner in (producer, group, role)) != 1:
            raise InvalidValue("Provide exactly one of producer, group and role.", field="producer")
        if producer is not None and producer not in snapshot.producers:
            raise ProducerNotFound(f"Producer {producer} is not registered.", producer=producer)
        if group is not None and group not in snapshot.groups:
            raise GroupNotFound(f"Group {group} is not registered.", group=group)
        if role not in {None, *KEY_ROLES}:
            raise InvalidValue(f"role must be one of {', '.join(KEY_ROLES)}", field="role")
        for field, text in (("name", name), ("owner", owner)):
            if text is not None and not (1 <= len(text) <= _MAX_TEXT and text.isprintable()):
                raise InvalidValue(f"{field} must be 1 to {_MAX_TEXT} printable characters", field=field)
        if role != "admin" and not snapshot.keys:
            # From the first key on, requests need a key. Without an admin key no further key could be created.
            raise FirstKeyNotAdmin('Create an admin key first: {"role": "admin"}.', field="role")
        if expires_at is not None and expires_at <= self._clock():
            raise InvalidValue("expiresAt must be in the future", field="expiresAt")
        secret = secrets.token_urlsafe(32)
        key = ApiKey(
            id=secrets.token_hex(6),
            digest=_digest(secret),
            producer=producer,
            group=group,
            role=role,
            created_at=self._clock(),
            expires_at=expires_at,
            name=name or "",
            owner=owner,
        )
        await self._store.save(key, self._audit_entry(actor, "create", key), decided_on=snapshot.version)
        await self._directory.refresh()
        return key, f"mqk_{key.id}_{secret}"

    async def delete(self, key_id: str, actor: str) -> None:
        snapshot = await self._directory.refresh()
        key = snapshot.keys.get(key_id)
        if key is None:
            raise KeyNotFound(f"Key {key_id} does not exist. List the keys with GET /v1/keys.")
        others = [other for other in snapshot.keys.values() if other.id != key_id]
        if not others and not self._may_be_open:
            raise LastKey("The gateway listens on more than loopback. Create another key first.")
        if key.role == "admin" and others and not any(other.role == "admin" for other in others):
            raise LastKey("Only an admin can create keys. Create another admin key, or delete the others first.")
        await self._store.remove(key, self._audit_entry(actor, "delete", key), decided_on=snapshot.version)
        await self._directory.refresh()

    def _audit_entry(self, actor: str, action: str, key: ApiKey) -> AuditEntry:
        owner = key.producer or key.group or key.role
        return AuditEntry(
            at=self._clock(),
            actor=actor,
            action=action,
            subject=f"key {key.id}",
            reason=None,
            details=f'"{owner}"',
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
