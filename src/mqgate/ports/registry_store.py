"""Storage of the registry. Its version grows with every change."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mqgate.core.entries import Account, ApiKey, Group, Producer, Snapshot, Team, Topic
from mqgate.core.receipt import KeyRotationPolicy, SigningKeys

Entry = Topic | Producer | Group | ApiKey | Account | Team


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A record of who changed what, when and why."""

    at: datetime
    actor: str
    action: str
    subject: str
    reason: str | None
    details: str


class RegistryStore(Protocol):
    """A durable registry. Changes carry the version they are based on; a stale version raises RegistryChanged."""

    def change_lock(self) -> AbstractAsyncContextManager[None]:
        """Hold the lock under which entries and the resources that belong to them change, over all gateways.

        A gateway that is disconnected loses the lock without notice. The version check still protects its changes.
        """

    async def version(self) -> int:
        """Return the version of the newest change."""

    async def load(self) -> Snapshot:
        """Return all entries as one consistent snapshot."""

    async def save(self, entry: Entry, audit_entry: AuditEntry, *, decided_on: int) -> None:
        """Add or replace an entry and record the audit entry, in one transaction."""

    async def remove(self, entry: Entry, audit_entry: AuditEntry, *, decided_on: int) -> None:
        """Delete an entry and record the audit entry, in one transaction."""

    async def record(self, audit_entry: AuditEntry) -> None:
        """Record an operation that changed no entry, such as a seek."""

    async def audit_entries(self, limit: int, before: str | None) -> tuple[Sequence[AuditEntry], str | None]:
        """Return audit entries, newest first, and the next cursor (None: no more).

        Raises InvalidValue if `before` is not a valid cursor.
        """

    async def receipt_keys(self, policy: KeyRotationPolicy) -> SigningKeys:
        """Return the accepted receipt keys and the one that signs. Create and delete keys when the policy requires it.

        Gateways call this periodically: every gateway must have loaded a key before any gateway signs with it.
        """
