"""Where registered things are kept, with a version that grows with every change."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mqgate.core.entries import ApiKey, Group, Producer, Snapshot, Topic

Entry = Topic | Producer | Group | ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Who did what to whom, when and why."""

    at: datetime
    actor: str
    action: str
    subject: str
    reason: str | None
    details: str


class RegistryStore(Protocol):
    """Changes name the version they were decided on; RegistryChanged if it is no longer current."""

    async def version(self) -> int:
        """The version of the newest change."""

    async def load(self) -> Snapshot:
        """Everything, as one consistent view."""

    async def save(self, entry: Entry, act: Act, *, decided_on: int) -> None:
        """Add or replace an entry and record the act, in one step."""

    async def remove(self, entry: Entry, act: Act, *, decided_on: int) -> None:
        """Remove an entry and record the act, in one step."""

    async def record(self, act: Act) -> None:
        """Record an act that changed no entry (a seek)."""

    async def acts(self, most: int, before: str | None) -> tuple[Sequence[Act], str | None]:
        """The newest acts first, and where to go on (None: no more)."""

    async def receipt_keys(self, *, overlap_ms: int, lifetime_ms: int) -> dict[int, bytes]:
        """The signing keys still accepted; a fresh one is made when the newest is older than its lifetime."""
