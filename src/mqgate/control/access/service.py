"""Make, list and delete keys; tell who a key belongs to.

A key is `mqk_<id>_<secret>`: the id finds the entry, the secret has 256 random bits, so a plain SHA-256 of it is all
that is kept.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime

from mqgate.control.access.model import OPEN, Principal
from mqgate.control.registry.directory import CachedDirectory
from mqgate.core.entries import ApiKey
from mqgate.core.errors import (
    FirstKeyNotAdmin,
    GroupNotFound,
    InvalidValue,
    KeyNotFound,
    LastKey,
    ProducerNotFound,
    Unauthorized,
)
from mqgate.ports.registry_store import AuditEntry, RegistryStore


class Access:
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
        """Whether there is no key: then everybody may do everything, if the server listens on loopback."""
        return not self._directory.snapshot.keys

    @property
    def is_for_all(self) -> bool:
        """Whether it is open, and may be: who calls needs not be found out."""
        return self._may_be_open and not self._directory.snapshot.keys

    async def authenticate(self, authorization: str | None) -> Principal:
        """The caller, by the Authorization header; Unauthorized if keys are in use and this is none of them."""
        if self.is_for_all:
            return OPEN
        keys = self._directory.snapshot.keys
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("send Authorization: Bearer <key>")
        key_id, _, secret = token.strip().removeprefix("mqk_").partition("_")
        if key_id not in keys:
            # Another gateway may have made it.
            await self._catch_up()
        key = self._directory.snapshot.keys.get(key_id)
        # Compared also when there is no such key, so that the time taken does not tell.
        is_right = hmac.compare_digest(_digest(secret), key.digest if key else _digest(""))
        if key is None or not is_right or (key.expires_at and key.expires_at <= self._clock()):
            raise Unauthorized("this key is unknown, was deleted, or has expired")
        return Principal(
            name=f"key {key.id}",
            is_admin=key.role == "admin",
            producer=key.producer,
            group=key.group,
            key_id=key.id,
        )

    async def create(
        self,
        *,
        producer: str | None,
        group: str | None,
        role: str | None,
        expires_at: datetime | None,
        actor: str,
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which is shown this once."""
        snapshot = await self._directory.refresh()
        if sum(each is not None for each in (producer, group, role)) != 1:
            raise InvalidValue("say one of producer, group or role", field="producer")
        if producer is not None and producer not in snapshot.producers:
            raise ProducerNotFound(f"producer {producer} is not registered", producer=producer)
        if group is not None and group not in snapshot.groups:
            raise GroupNotFound(f"group {group} is not registered", group=group)
        if role not in {None, "admin"}:
            raise InvalidValue("the only role is admin", field="role")
        if role != "admin" and not snapshot.keys:
            # The first key closes the API. Without an admin key nobody could create another one.
            raise FirstKeyNotAdmin('Create an admin key first: {"role": "admin"}.', field="role")
        if expires_at is not None and expires_at <= self._clock():
            raise InvalidValue("expiresAt must lie in the future", field="expiresAt")
        secret = secrets.token_urlsafe(32)
        key = ApiKey(
            id=secrets.token_hex(6),
            digest=_digest(secret),
            producer=producer,
            group=group,
            role=role,
            created_at=self._clock(),
            expires_at=expires_at,
        )
        await self._store.save(key, self._audit_entry(actor, "create", key), decided_on=snapshot.version)
        await self._directory.refresh()
        return key, f"mqk_{key.id}_{secret}"

    async def delete(self, key_id: str, actor: str) -> None:
        snapshot = await self._directory.refresh()
        key = snapshot.keys.get(key_id)
        if key is None:
            raise KeyNotFound(f"there is no key {key_id}: GET /v1/keys lists them")
        others = [each for each in snapshot.keys.values() if each.id != key_id]
        if not others and not self._may_be_open:
            raise LastKey("this gateway listens beyond loopback: make another key before you delete its last one")
        if key.role == "admin" and others and not any(each.role == "admin" for each in others):
            raise LastKey("only an admin can make keys: make another admin's key first, or delete the others first")
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
