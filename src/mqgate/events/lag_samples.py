"""Samples the lag of active groups periodically.

A group is sampled if this gateway recorded events of the group or of its topic since the previous sample. It is sampled
once more afterwards, so that its history ends with its final lag. Idle groups are not sampled and cost the stores
nothing.
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
from mqgate.events.rows import ActiveNames
from mqgate.ports.directory import Directory

__all__ = ["LagSamples"]

# The client ("" unless broadcast), its position in each queue, and the store time of its oldest unsettled message.
ClientPositions = tuple[str, Sequence[Position], datetime | None]
_log = structlog.get_logger()


class LagSamples:
    """Background service that records lag samples. `read_positions` reads the positions of a group."""

    def __init__(
        self,
        directory: Directory,
        recorder: EventRecorder,
        read_positions: Callable[[Group], Awaitable[Sequence[ClientPositions]]],
        *,
        interval: timedelta,
    ) -> None:
        self._directory = directory
        self._recorder = recorder
        self._read_positions = read_positions
        self._interval = interval.total_seconds()
        self._active: ActiveNames = set()
        self._previously_active: ActiveNames = set()
        self._background = Background(self._loop)

    def start(self) -> None:
        if self._interval:
            self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    def mark_active(self, active: ActiveNames) -> None:
        """Mark topics and groups for the next sample."""
        self._active |= active

    async def run_once(self) -> None:
        """Sample the groups that were active before this call or before the previous one."""
        due = self._active | self._previously_active
        self._previously_active, self._active = self._active, set()
        for group in self._groups(due):
            try:
                positions_by_client = await self._read_positions(group)
            except MqgateError as error:
                # The lease state does not exist yet, or a store is unavailable.
                _log.debug("lag sample failed", group=group.name, error=error.detail)
                continue
            self._recorder.sampled([row for item in positions_by_client for row in self._rows(group, *item)])

    def _groups(self, due: ActiveNames) -> list[Group]:
        topics = {topic for topic, group in due if group is None}
        names = {group for _, group in due}
        known = self._directory.snapshot.groups.values() if due else ()
        return [group for group in known if group.topic in topics or group.name in names]

    def _rows(
        self, group: Group, client: str, positions: Sequence[Position], oldest: datetime | None
    ) -> Iterator[LagRow]:
        at, oldest_at = self._recorder.now(), None if oldest is None else milliseconds(oldest)
        for position in positions:
            offsets = position.min, position.max, position.committed
            counts = position.ready, position.leased, position.waiting
            yield at, group.topic, group.name, client or None, position.queue, *offsets, *counts, oldest_at

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.run_once()
