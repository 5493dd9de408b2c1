"""Messages that wait for their time, judged by the store's own clock."""

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
    """A message and when it is due; `number` is the store's, 0 before it is stored."""

    topic: str
    draft: Draft
    due: datetime
    state: TimerState = TimerState.SCHEDULED
    number: int = 0


class TimerStore(Protocol):
    async def add(self, timers: Sequence[Timer]) -> None:
        """Schedule messages, durably."""

    async def claim(self, limit: int) -> tuple[Sequence[Timer], datetime | None]:
        """Take what is due, the earliest first, for dispatch by us alone; and when the next one is due."""

    async def unfinished(self) -> Sequence[Timer]:
        """What was claimed by a process that is gone: it may or may not have been dispatched."""

    async def finish(self, timers: Sequence[Timer]) -> None:
        """Claimed timers were dispatched."""

    async def release(self, timers: Sequence[Timer]) -> None:
        """Claimed timers could not be dispatched: they are due again."""

    async def cancel_all(self, topic: str) -> None:
        """Cancel whatever is scheduled or claimed for a topic: it is going."""

    async def get(self, message_id: str) -> Timer | None:
        """The newest timer of a message; delivered and cancelled ones are known for 10 minutes at least."""

    async def list(
        self,
        *,
        topic: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        after: str | None,
    ) -> tuple[Sequence[Timer], str | None]:
        """Scheduled timers by due time, without bodies, and where to go on (None: no more).

        InvalidValue if `after` is no such place.
        """

    async def change(self, message_id: str, due: datetime | None) -> TimerState | None:
        """Re-time a scheduled message, or cancel it (due None); the state it was found in, None if unknown."""
