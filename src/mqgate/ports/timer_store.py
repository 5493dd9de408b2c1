"""Storage of timers: scheduled messages, due by the clock of the store."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from mqgate.core.message import Draft


class TimerState(StrEnum):
    SCHEDULED = "scheduled"
    CLAIMED = "claimed"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"


class Timer(NamedTuple):
    """A scheduled message. `number` is assigned by the store and is 0 before that.

    `producer` is None if the message was published without one, or by release 0.1.0.
    """

    topic: str
    draft: Draft
    due: datetime
    state: TimerState = TimerState.SCHEDULED
    number: int = 0
    producer: str | None = None


class TimerStore(Protocol):
    """A durable store of timers."""

    async def add(self, timers: Sequence[Timer]) -> None:
        """Store timers durably."""

    async def claim(self, limit: int) -> tuple[Sequence[Timer], datetime | None]:
        """Claim up to `limit` due timers for this gateway, earliest first. Return them and the next due time."""

    async def unfinished(self) -> Sequence[Timer]:
        """Return timers claimed by a gateway that no longer runs. They may or may not have been dispatched."""

    async def finish(self, timers: Sequence[Timer]) -> None:
        """Mark claimed timers as delivered."""

    async def release(self, timers: Sequence[Timer]) -> None:
        """Make claimed timers due again because they were not dispatched."""

    async def cancel_all(self, topic: str) -> None:
        """Cancel all scheduled and claimed timers of a topic that is being deleted."""

    async def get(self, message_id: str) -> Timer | None:
        """Return the newest timer of a message. Delivered and cancelled timers are kept for at least 10 minutes."""

    async def list(
        self,
        *,
        topic: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        after: str | None,
        producer: str | None = None,
    ) -> tuple[Sequence[Timer], str | None]:
        """Return scheduled timers by due time, without bodies, and the next cursor (None: no more).

        Raises InvalidValue if `after` is not a valid cursor.
        """

    async def change(self, message_id: str, due: datetime | None) -> TimerState | None:
        """Change the due time of a scheduled message, or cancel it (None). Return its state before, None if unknown."""

    async def tidy(self) -> None:
        """Delete timers that were delivered or cancelled a while ago. The gateway calls it regularly."""
