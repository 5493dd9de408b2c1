"""Storage of dead letters: messages whose last allowed delivery failed."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from mqgate.core.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An exhausted message with its origin. `number` is assigned by the store and is 0 before that."""

    group: str
    client: str
    message: Message
    deliveries: int
    first_at: datetime
    last_at: datetime
    reason: str | None
    number: int = field(default=0, compare=False)


class DeadLetterStore(Protocol):
    """A durable store of dead letters."""

    async def record(self, letter: DeadLetter) -> None:
        """Store a dead letter. A repeat for the same group, client, queue and offset adds no second one."""

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
        """Return dead letters with `last_at` in [since, until), in the order recorded, and the next cursor.

        `key` None selects all keys; cursor None is the end. Raises InvalidValue if `after` is not a valid cursor.
        """

    async def get(self, group: str, message_id: str) -> Sequence[DeadLetter]:
        """Return the dead letters of one message, newest first. Each broadcast client may have one."""

    async def remove(self, letters: Sequence[DeadLetter]) -> None:
        """Delete these dead letters. Those that no longer exist are ignored."""

    def redrive_lock(self, group: str) -> AbstractAsyncContextManager[None]:
        """Hold the lock under which the dead letters of a group are selected and redriven or deleted.

        At most one holder per group exists over all gateways.
        """

    async def forget(self, group: str) -> None:
        """Delete all dead letters of a group."""
