"""How far behind groups are, every now and then, while they are at work.

A group is sampled if it was at work at this gateway since the last time, or its topic was: published to, received from,
settled. And once more afterwards, so that its history ends where it came to rest. Nobody else is looked at: what is
idle costs the stores nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta

import structlog

from mqgate.background import Background
from mqgate.core.entries import Group
from mqgate.core.errors import MqgateError
from mqgate.core.lease import Position
from mqgate.core.message import milliseconds
from mqgate.events.recorder import EventRecorder, LagRow
from mqgate.events.rows import Active
from mqgate.ports.directory import Directory

__all__ = ["LagSamples"]

# A client (of a broadcast group, else ""), where it stands, and when its oldest unsettled message was stored.
Standing = tuple[str, Sequence[Position], datetime | None]
_log = structlog.get_logger()


class LagSamples:
    """`standings` looks at a group."""

    def __init__(
        self,
        directory: Directory,
        recorder: EventRecorder,
        standings: Callable[[Group], Awaitable[Sequence[Standing]]],
        *,
        interval: timedelta,
    ) -> None:
        self._directory = directory
        self._recorder = recorder
        self._standings = standings
        self._interval = interval.total_seconds()
        self._active: Active = set()
        self._before: Active = set()
        self._background = Background(self._loop)

    def start(self) -> None:
        if self._interval:
            self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    def touched(self, active: Active) -> None:
        """Something happened to these."""
        self._active |= active

    async def run_once(self) -> None:
        """Sample whoever was at work since the last time, or until then."""
        due = self._active | self._before
        self._before, self._active = self._active, set()
        for group in self._groups(due):
            try:
                found = await self._standings(group)
            except MqgateError as error:
                # Its state is not made yet, or a store is away.
                _log.debug("lag was not sampled", group=group.name, error=error.detail)
                continue
            self._recorder.sampled([row for each in found for row in self._rows(group, *each)])

    def _groups(self, due: Active) -> list[Group]:
        topics = {topic for topic, group in due if group is None}
        names = {group for _, group in due}
        known = self._directory.snapshot.groups.values() if due else ()
        return [group for group in known if group.topic in topics or group.name in names]

    def _rows(
        self, group: Group, client: str, positions: Sequence[Position], oldest: datetime | None
    ) -> Iterator[LagRow]:
        at, oldest_at = self._recorder.now(), None if oldest is None else milliseconds(oldest)
        for each in positions:
            ends = each.min, each.max, each.committed
            counts = each.ready, each.leased, each.waiting
            yield at, group.topic, group.name, client or None, each.queue, *ends, *counts, oldest_at

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.run_once()
