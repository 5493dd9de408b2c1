"""Redrive and purge of dead letters.

Redriven messages are stored in the private log of the group, so that no other group receives them again: same id,
deliveries from 1. The dead letter is removed after the message is stored. After a crash in between, a message is in
both places, never in none. The same holds if the outcome of the append is unknown (`unknown`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum

from mqgate.consumption.group_log import redriven
from mqgate.consumption.long_poll import LongPoll
from mqgate.consumption.positions import PositionService
from mqgate.core.entries import Group
from mqgate.core.errors import Busy, MqgateError, OutcomeUnknown
from mqgate.core.message import Stored
from mqgate.core.names import retry_topic
from mqgate.ports.dead_letters import DeadLetter, DeadLetterStore
from mqgate.ports.message_log import MessageLog

MAX_LETTERS = 1_000
_BATCH_SECONDS = 0.1


class RedriveOutcome(StrEnum):
    REDRIVEN = "redriven"
    PURGED = "purged"
    NOT_FOUND = "not_found"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @property
    def is_left(self) -> bool:
        """Return whether the dead letter is still stored, so that the call can be repeated."""
        return self is RedriveOutcome.FAILED or self is RedriveOutcome.UNKNOWN


class RedriveNotifier:
    """Wake-up of the receives of a group after messages were added to its private log.

    `wake` wakes the receives that are parked on other gateways.
    """

    def __init__(self, positions: PositionService, wake: Callable[[str], Awaitable[None]], long_poll: LongPoll) -> None:
        self._positions = positions
        self._wake = wake
        self._long_poll = long_poll

    async def notify(self, group: Group) -> None:
        """Report the new bounds to the lease store, then wake all parked receives of the group."""
        # Other gateways may not see the private log for a moment, so the store must have its bounds before they are
        # woken. If that fails, the messages are stored nevertheless, and the other gateways find them by themselves.
        with contextlib.suppress(Busy):
            await self._positions.report_bounds(group)
            await self._wake(group.name)
        self._long_poll.changed(group.name)


class Redriver:
    def __init__(
        self, log: MessageLog, dead_letters: DeadLetterStore, changed: Callable[[Group], Awaitable[None]]
    ) -> None:
        self._log = log
        self._dead_letters = dead_letters
        self._changed = changed

    def lock(self, group: Group) -> AbstractAsyncContextManager[None]:
        """Return the redrive lock of a group. Two concurrent redrives would store a message twice."""
        return self._dead_letters.redrive_lock(group.name)

    async def choose(self, group: Group, ids: Sequence[str] | None) -> tuple[list[DeadLetter], bool]:
        """Return the dead letters with these ids (None: the oldest ones), and whether there are more."""
        if ids is None:
            letters, more = await self._dead_letters.list(
                group.name, key=None, since=None, until=None, limit=MAX_LETTERS, after=None
            )
            return list(letters), more is not None
        found = [await self._dead_letters.get(group.name, message_id) for message_id in dict.fromkeys(ids)]
        return [letter for letters in found for letter in letters], False

    async def redrive(self, group: Group, letters: Sequence[DeadLetter], rate: float | None) -> list[RedriveOutcome]:
        """Store dead letters again for this group, at most `rate` per second; return one outcome per letter."""
        outcomes: list[RedriveOutcome] = []
        if not letters:
            return outcomes
        topic = retry_topic(group.name)
        await self._log.create(topic, 1, is_per_broker=True)
        async for batch in _paced(letters, rate):
            results = await self._log.append(topic, [redriven(letter.message) for letter in batch])
            batch_outcomes = [_redrive_outcome(result) for result in results]
            pairs = zip(batch, batch_outcomes, strict=True)
            await self._dead_letters.remove([letter for letter, outcome in pairs if not outcome.is_left])
            await self._changed(group)
            outcomes += batch_outcomes
        return outcomes

    async def purge(self, letters: Sequence[DeadLetter], rate: float | None) -> None:
        """Remove dead letters, at most `rate` per second."""
        async for batch in _paced(letters, rate):
            await self._dead_letters.remove(batch)


async def _paced(letters: Sequence[DeadLetter], rate: float | None) -> AsyncIterator[Sequence[DeadLetter]]:
    """Yield batches, at most `rate` letters per second; without a rate one batch of all."""
    size = len(letters) if rate is None else max(int(rate * _BATCH_SECONDS), 1)
    for start in range(0, len(letters), max(size, 1)):
        if start and rate is not None:
            await asyncio.sleep(size / rate)
        yield letters[start : start + size]


def _redrive_outcome(result: Stored | MqgateError) -> RedriveOutcome:
    if isinstance(result, OutcomeUnknown):
        return RedriveOutcome.UNKNOWN
    return RedriveOutcome.FAILED if isinstance(result, MqgateError) else RedriveOutcome.REDRIVEN
