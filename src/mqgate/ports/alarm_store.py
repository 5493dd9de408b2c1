"""Storage of alarms, notifications and deliveries, and the lease of the gateway that evaluates the rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from mqgate.core.alarms import Alarm, ChannelState, Delivery, Notification

__all__ = ["AlarmChanges", "AlarmStore", "OpenAlarms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAlarms:
    """What a new evaluator continues with: open alarms and pending deliveries, oldest first."""

    alarms: Sequence[Alarm] = ()
    deliveries: Sequence[Delivery] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmChanges:
    """Changes that are stored together. `dropped` are ids of pending alarms that ended without firing."""

    alarms: Sequence[Alarm] = ()
    dropped: Sequence[str] = ()
    deliveries: Sequence[Delivery] = ()
    notifications: Sequence[Notification] = ()

    def __bool__(self) -> bool:
        return bool(self.alarms or self.dropped or self.deliveries or self.notifications)


class AlarmStore(Protocol):
    """A durable store of alarms. The lease ends by the clock of the store."""

    async def acquire(self, holder: str, ttl: timedelta) -> int | None:
        """Take or extend the lease of the evaluator. Return its term, or None while another gateway holds it.

        The term grows whenever the holder changes.
        """

    async def release(self, holder: str) -> None:
        """End the lease of this holder, so that another gateway can take it at once."""

    async def load(self) -> OpenAlarms:
        """Return the open alarms and the pending deliveries."""

    async def save(self, holder: str, term: int, changes: AlarmChanges) -> bool:
        """Store changes in one transaction. Return False, without a change, if the lease has another term or holder.

        Alarms, notifications and deliveries are added or replaced, so that the call may be repeated.
        """

    async def alarms(self, limit: int, before: str | None) -> tuple[Sequence[Alarm], str | None]:
        """Return alarms, open or not, newest first, and the next cursor (None: no more).

        Raises InvalidValue if `before` is not a valid cursor.
        """

    async def notifications(self, limit: int, before: str | None) -> tuple[Sequence[Notification], str | None]:
        """Return notifications, newest first, and the next cursor (None: no more).

        Raises InvalidValue if `before` is not a valid cursor.
        """

    async def channel_states(self) -> Sequence[ChannelState]:
        """Return the state of each channel that has deliveries."""

    async def tidy(self, kept: timedelta) -> None:
        """Delete closed alarms and notifications without pending deliveries that are older than `kept`."""
