"""Storage of sessions and of attempts to sign in, shared by all gateways."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from mqgate.core.sign_in import Slot

__all__ = ["Session", "SessionStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A person who signed in. `digest` is the hash of the token that the client presents."""

    digest: str = field(repr=False)
    account: str
    created_at: datetime
    seen_at: datetime
    address: str
    client: str


class SessionStore(Protocol):
    """A durable store of sessions. All instants are given by the caller."""

    async def add(self, session: Session, *, keep: int) -> None:
        """Store a session, and delete the oldest sessions of its account if there are more than `keep`."""

    async def find(self, digest: str) -> Session | None:
        """Return a session, or None."""

    async def touch(self, digest: str, at: datetime) -> None:
        """Record that a session was used."""

    async def remove(self, account: str, *, digest: str | None = None, other_than: str | None = None) -> int:
        """Delete one session of an account, all but one, or all. Return their number."""

    async def of(self, account: str) -> Sequence[Session]:
        """Return the sessions of an account, the newest first."""

    async def attempt(self, slots: Sequence[Slot], now: datetime) -> timedelta:
        """Count an attempt to sign in for each slot, or return the wait if a slot does not allow one now.

        The check and the count are one step, so that concurrent attempts cannot exceed the limit.
        """

    async def succeed(self, *, cleared: Slot, undone: Slot) -> None:
        """Delete the attempts of one slot, and remove one attempt from the other, after a sign-in succeeded."""

    async def tidy(self, *, created_before: datetime, seen_before: datetime, attempts_before: datetime) -> None:
        """Delete sessions and attempts that are over."""
