"""The messages that a worker holds: their leases, and the acks that wait for the next receive."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mqgate.client.delivery import Message
from mqgate.client.types import ReceivedMessage

__all__ = ["Held", "HeldMessages"]

_MAX_RECEIPTS = 1_000


@dataclass(slots=True, eq=False)
class Held:
    """One leased message."""

    message: Message
    receipt: str
    leased_at: float
    started_at: float | None = None
    task: "asyncio.Task[None] | None" = field(default=None)
    is_finished: bool = False
    is_given_up: bool = False


class HeldMessages:
    """All leases of one group. A lease is held until its settlement is confirmed, so that it is extended till then."""

    def __init__(self, low: int) -> None:
        self._low = low
        self._by_receipt: dict[str, Held] = {}
        self._unfinished = 0
        self._acks: list[str] = []
        self._acks_since = 0.0
        # Set when no more than `low` messages are unfinished.
        self.has_room = asyncio.Event()

    @property
    def unfinished(self) -> int:
        """The number of messages whose handlers have not ended."""
        return self._unfinished

    def add(self, messages: Sequence[ReceivedMessage]) -> list[Held]:
        """Hold new messages. A message whose receipt is held already was returned by a repeated receive."""
        now = time.monotonic()
        added = [
            Held(Message(message), message["receipt"], now)
            for message in messages
            if message["receipt"] not in self._by_receipt
        ]
        self._by_receipt.update((held.receipt, held) for held in added)
        self._unfinished += len(added)
        if self._unfinished > self._low:
            self.has_room.clear()
        return added

    def finish(self, held: Held, *, is_acked: bool) -> None:
        """Note the end of a handler, and the ack that is to be sent."""
        held.is_finished = True
        self._unfinished -= 1
        if is_acked:
            if not self._acks:
                self._acks_since = time.monotonic()
            self._acks.append(held.receipt)
        if self._unfinished <= self._low:
            self.has_room.set()

    def drop(self, receipts: Iterable[str]) -> None:
        """Forget leases that are settled, lost or given up."""
        for receipt in receipts:
            self._by_receipt.pop(receipt, None)

    def find(self, receipt: str) -> Held | None:
        return self._by_receipt.get(receipt)

    def running(self) -> list[Held]:
        return [held for held in self._by_receipt.values() if held.task is not None and not held.is_finished]

    def take_acks(self) -> list[str]:
        """Return the acks to send now, at most as many as one request may have."""
        taken, self._acks = self._acks[:_MAX_RECEIPTS], self._acks[_MAX_RECEIPTS:]
        return taken

    def put_back(self, acks: list[str]) -> None:
        """Keep acks whose request failed."""
        self._acks = acks + self._acks
        self._acks_since = time.monotonic()

    def age_of_acks(self) -> float | None:
        """Return how long the first ack has been waiting, or None if there is none."""
        return time.monotonic() - self._acks_since if self._acks else None

    def to_extend(self, older_than: float) -> list[Held]:
        """Return the leases that began or were extended longer ago than that."""
        limit = time.monotonic() - older_than
        return [held for held in self._by_receipt.values() if held.leased_at <= limit and not held.is_given_up]
