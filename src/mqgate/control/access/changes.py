"""Changes of keys, accounts and teams: decided on the newest registry, and repeated if another gateway was faster."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import msgspec

from mqgate.control.audit import audit_details, audit_subject
from mqgate.control.registry.directory import CachedDirectory
from mqgate.core.entries import Snapshot
from mqgate.core.errors import RegistryChanged
from mqgate.ports.registry_store import AuditEntry, Entry, RegistryStore

__all__ = ["Change", "EntryChanges"]

_MAX_ATTEMPTS = 10


class Change(NamedTuple):
    """A decided change: `action` is create, change or delete."""

    action: str
    entry: Entry


class EntryChanges:
    """Applies changes. Decisions are pure, because they may be repeated."""

    def __init__(self, store: RegistryStore, directory: CachedDirectory, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock

    async def snapshot(self) -> Snapshot:
        """Return the newest registry."""
        return await self._directory.refresh()

    async def apply(self, decide: Callable[[Snapshot], Change], actor: str) -> Change:
        """Apply the change that `decide` derives from the newest registry, and return it."""
        attempt = 0
        while True:
            attempt += 1
            seen = await self._directory.refresh()
            change = decide(seen)
            try:
                await self._write(change, actor, seen.version)
            except RegistryChanged:
                if attempt == _MAX_ATTEMPTS:
                    raise
                continue
            await self._directory.refresh()
            return change

    async def record(self, actor: str, action: str, subject: str, details: object) -> None:
        """Record an operation that changed no entry."""
        await self._store.record(self._audit(actor, action, subject, details))

    async def _write(self, change: Change, actor: str, version: int) -> None:
        action, entry = change
        details = {"old" if action == "delete" else "new": audit_details(entry)}
        audit = self._audit(actor, action, audit_subject(entry), details)
        write = self._store.remove if action == "delete" else self._store.save
        await write(entry, audit, decided_on=version)

    def _audit(self, actor: str, action: str, subject: str, details: object) -> AuditEntry:
        encoded = msgspec.json.encode(details).decode()
        return AuditEntry(at=self._clock(), actor=actor, action=action, subject=subject, reason=None, details=encoded)
