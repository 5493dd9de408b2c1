"""Messages that failed for the last time, kept for people to look at."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from mqgate.core.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead message with its origin and its story; `number` is the store's, 0 before it is stored."""

    group: str
    client: str
    message: Message
    deliveries: int
    first_at: datetime
    last_at: datetime
    reason: str | None
    number: int = field(default=0, compare=False)


class DeadLetterStore(Protocol):
    async def record(self, letter: DeadLetter) -> None:
        """Keep a dead letter; once by group, client, queue and offset, however often it is recorded."""

    async def list(
        self,
        group: str,
        *,
        key: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        after: str | None,
    ) -> tuple[Sequence[DeadLetter], str | None]:
        """Dead letters by time of death in [since, until), and where to go on (None: no more).

        InvalidValue if `after` is no such place.
        """

    async def get(self, group: str, message_id: str) -> Sequence[DeadLetter]:
        """The dead letters of one message, the newest first: it may have died for several broadcast clients."""

    async def remove(self, letters: Sequence[DeadLetter]) -> None:
        """Drop these dead letters; those that are gone already are no error."""

    def redrive_lock(self, group: str) -> AbstractAsyncContextManager[None]:
        """One at a time chooses among a group's dead letters and acts, whichever gateway asks it to."""

    async def forget(self, group: str) -> None:
        """Drop all dead letters of a group."""
