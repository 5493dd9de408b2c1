"""Where registered things are kept, with a version that grows with every change."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mqgate.core.entries import ApiKey, Group, Producer, Snapshot, Topic
from mqgate.core.receipt import KeyRotationPolicy, SigningKeys

Entry = Topic | Producer | Group | ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what to whom, when and why."""

    at: datetime
    actor: str
    action: str
    subject: str
    reason: str | None
    details: str


class RegistryStore(Protocol):
    """Changes name the version they were decided on; RegistryChanged if it is no longer current."""

    def change_lock(self) -> AbstractAsyncContextManager[None]:
        """Who makes or drops what belongs to an entry does so in its turn: one at a time over all gateways.

        A gateway that is cut off loses its turn unnoticed; what it decided on is looked at all the same.
        """

    async def version(self) -> int:
        """The version of the newest change."""

    async def load(self) -> Snapshot:
        """Everything, as one consistent view."""

    async def save(self, entry: Entry, act: AuditEntry, *, decided_on: int) -> None:
        """Add or replace an entry and record the act, in one step."""

    async def remove(self, entry: Entry, act: AuditEntry, *, decided_on: int) -> None:
        """Remove an entry and record the act, in one step."""

    async def record(self, act: AuditEntry) -> None:
        """Record an act that changed no entry (a seek)."""

    async def audit_entries(self, limit: int, before: str | None) -> tuple[Sequence[AuditEntry], str | None]:
        """The newest acts first, and where to go on (None: no more); InvalidValue if `before` is no such place."""

    async def receipt_keys(self, terms: KeyRotationPolicy) -> SigningKeys:
        """The keys still accepted and the one to sign with; a fresh one is made, and old ones go, when it is time.

        To be asked now and then: every gateway must know a key before any signs with it.
        """
