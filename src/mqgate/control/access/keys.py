"""Create, verify and delete API keys.

A key has the form `mqk_<id>_<secret>`. The id identifies the entry. The secret has 256 random bits, so that storing its
plain SHA-256 is safe.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from mqgate.control.access.changes import Change, EntryChanges
from mqgate.control.access.model import check_has_admin, check_label, has_admin
from mqgate.control.access.permissions import KEY_ROLES
from mqgate.core.entries import ApiKey, Snapshot
from mqgate.core.errors import GroupNotFound, InvalidValue, KeyNotFound, LastKey, ProducerNotFound

__all__ = ["ApiKeys", "KeySpec", "digest_of", "is_valid", "new_key_text", "parse_key"]

PREFIX = "mqk_"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpec:
    """What a key grants access to (one of producer, group, role), and how it is described."""

    producer: str | None = None
    group: str | None = None
    role: str | None = None
    name: str | None = None
    owner: str | None = None
    expires_at: datetime | None = None


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def parse_key(token: str) -> tuple[str, str]:
    """Return the id and the secret of a key."""
    key_id, _, secret = token.strip().removeprefix(PREFIX).partition("_")
    return key_id, secret


def new_key_text() -> str:
    return f"{PREFIX}{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"


def is_valid(key: ApiKey | None, secret: str, now: datetime) -> bool:
    """Return whether a secret is the one of a key that has not expired."""
    # Also compared if the key does not exist, so that the response time does not reveal it.
    is_right = hmac.compare_digest(digest_of(secret), key.digest if key else digest_of(""))
    return key is not None and is_right and not (key.expires_at and key.expires_at <= now)


class ApiKeys:
    def __init__(self, changes: EntryChanges, clock: Callable[[], datetime], *, may_be_open: bool) -> None:
        self._changes = changes
        self._clock = clock
        self._may_be_open = may_be_open

    async def create(self, spec: KeySpec, actor: str, text: str | None = None) -> tuple[ApiKey, str]:
        """Create a key. Return it with its text, which is not stored. `text` is used instead of a random one."""
        text = text or new_key_text()
        key_id, secret = parse_key(text)
        key = ApiKey(
            id=key_id,
            digest=digest_of(secret),
            producer=spec.producer,
            group=spec.group,
            role=spec.role,
            created_at=self._clock(),
            expires_at=spec.expires_at,
            name=spec.name or "",
            owner=spec.owner,
        )

        def decide(seen: Snapshot) -> Change:
            self._check(spec, seen)
            check_has_admin(replace(seen, keys={**seen.keys, key.id: key}))
            return Change("create", key)

        await self._changes.apply(decide, actor)
        return key, text

    def _check(self, spec: KeySpec, seen: Snapshot) -> None:
        if sum(owner is not None for owner in (spec.producer, spec.group, spec.role)) != 1:
            raise InvalidValue("Provide exactly one of producer, group and role.", field="producer")
        if spec.producer is not None and spec.producer not in seen.producers:
            raise ProducerNotFound(f"Producer {spec.producer} is not registered.", producer=spec.producer)
        if spec.group is not None and spec.group not in seen.groups:
            raise GroupNotFound(f"Group {spec.group} is not registered.", group=spec.group)
        if spec.role not in {None, *KEY_ROLES}:
            raise InvalidValue(f"role must be one of {', '.join(KEY_ROLES)}", field="role")
        check_label(spec.name, "name")
        check_label(spec.owner, "owner")
        if spec.expires_at is not None and spec.expires_at <= self._clock():
            raise InvalidValue("expiresAt must be in the future", field="expiresAt")

    async def delete(self, key_id: str, actor: str) -> None:
        def decide(seen: Snapshot) -> Change:
            key = seen.keys.get(key_id)
            if key is None:
                raise KeyNotFound(f"Key {key_id} does not exist. List the keys with GET /v1/keys.")
            after = replace(seen, keys={other.id: other for other in seen.keys.values() if other is not key})
            is_last = not after.keys and not after.accounts
            if is_last and not self._may_be_open:
                raise LastKey("The gateway listens on more than loopback. Create another key first.")
            if not is_last and has_admin(seen) and not has_admin(after):
                raise LastKey("Only an admin can create keys. Create another admin key, or delete the others first.")
            return Change("delete", key)

        await self._changes.apply(decide, actor)
