"""Give dead letters another chance, or throw them away.

Redriven messages go through a log private to the group, so that nobody else sees them again: same id, deliveries
from 1. First they are stored there, then the dead letter is removed; a crash in between shows a message in both,
never in none. The same holds for one that nobody answered for (`unknown`).
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

MOST_AT_ONCE = 1_000
_SLICE = 0.1


class RedriveOutcome(StrEnum):
    REDRIVEN = "redriven"
    PURGED = "purged"
    NOT_FOUND = "not_found"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @property
    def is_left(self) -> bool:
        """Whether the dead letter is still there although it was to go: try again later."""
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
            await self._positions.tell(group)
            await self._wake(group.name)
        self._long_poll.changed(group.name)


class Redriver:
    def __init__(
        self, log: MessageLog, dead_letters: DeadLetterStore, changed: Callable[[Group], Awaitable[None]]
    ) -> None:
        self._log = log
        self._dead_letters = dead_letters
        self._changed = changed

    def turn(self, group: Group) -> AbstractAsyncContextManager[None]:
        """One at a time chooses and acts, group by group: else two redrives would store a message twice."""
        return self._dead_letters.turn(group.name)

    async def choose(self, group: Group, ids: Sequence[str] | None) -> tuple[list[DeadLetter], bool]:
        """The dead letters named (None: the oldest ones), and whether there are more."""
        if ids is None:
            letters, more = await self._dead_letters.list(
                group.name, key=None, since=None, until=None, most=MOST_AT_ONCE, after=None
            )
            return list(letters), more is not None
        found = [await self._dead_letters.get(group.name, each) for each in dict.fromkeys(ids)]
        return [letter for letters in found for letter in letters], False

    async def redrive(self, group: Group, letters: Sequence[DeadLetter], rate: float | None) -> list[RedriveOutcome]:
        """Store them again for this group, at most so many a second; what became of each."""
        fates: list[RedriveOutcome] = []
        if not letters:
            return fates
        topic = retry_topic(group.name)
        await self._log.create(topic, 1)
        async for some in _paced(letters, rate):
            outcomes = await self._log.append(topic, [redriven(letter.message) for letter in some])
            told = [_fate(each) for each in outcomes]
            await self._dead_letters.remove([each for each, fate in zip(some, told, strict=True) if not fate.is_left])
            await self._changed(group)
            fates += told
        return fates

    async def purge(self, letters: Sequence[DeadLetter], rate: float | None) -> None:
        """Remove them, at most so many a second."""
        async for some in _paced(letters, rate):
            await self._dead_letters.remove(some)


async def _paced(letters: Sequence[DeadLetter], rate: float | None) -> AsyncIterator[Sequence[DeadLetter]]:
    """Some at a time, at most so many a second; without a rate all at once."""
    size = len(letters) if rate is None else max(int(rate * _SLICE), 1)
    for start in range(0, len(letters), max(size, 1)):
        if start and rate is not None:
            await asyncio.sleep(size / rate)
        yield letters[start : start + size]


def _fate(outcome: Stored | MqgateError) -> RedriveOutcome:
    if isinstance(outcome, OutcomeUnknown):
        return RedriveOutcome.UNKNOWN
    return RedriveOutcome.FAILED if isinstance(outcome, MqgateError) else RedriveOutcome.REDRIVEN
