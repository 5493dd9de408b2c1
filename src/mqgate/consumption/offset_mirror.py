"""The offset mirror: a second copy of the committed offsets, from which groups resume after a loss of lease state.

Active groups are written every few seconds, and only the queues whose offset moved. A seek is written before its
response is sent: otherwise a loss of lease state right after a seek backwards would skip the messages that the caller
requested again. Broadcast clients are not written, because brokers store offsets per group only.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import structlog

from mqgate.background import Background
from mqgate.consumption.group_log import GroupLog
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import MqgateError, StorageUnavailable
from mqgate.core.lease import QueueBounds
from mqgate.ports.directory import Directory
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.message_log import TopicBounds
from mqgate.ports.offset_mirror import OffsetMirror

_log = structlog.get_logger()


class OffsetMirrorService:
    """The offset mirror of this gateway. It does nothing on the embedded engine, which has no mirror."""

    def __init__(
        self, mirror: OffsetMirror | None, log: GroupLog, leases: LeaseStore, directory: Directory, interval: timedelta
    ) -> None:
        self._mirror = mirror
        self._log = log
        self._leases = leases
        self._directory = directory
        self._interval = interval
        self._dirty: set[str] = set()
        self._written: dict[str, dict[str, int]] = {}
        # One write per group at a time: an older write that ends later would undo a seek.
        self._locks: dict[str, asyncio.Lock] = {}
        self._run_lock = asyncio.Lock()
        self._background = Background(self._loop)

    def start(self) -> None:
        if self._mirror is not None:
            self._background.start()

    async def stop(self) -> None:
        """Write the remaining offsets and stop."""
        if await self._background.stop():
            await self.run_once()

    def mark_dirty(self, group: str) -> None:
        """Mark a group whose offsets may have moved, for the next run."""
        if self._mirror is not None:
            self._dirty.add(group)

    async def open(self, group: Group) -> None:
        """Register a new group. Raise StorageUnavailable while a queue is closed, because its bounds are unknown."""
        if self._mirror is None or group.mode is Mode.BROADCAST:
            return
        closed = sorted((await self._log.bounds(group)).closed)
        if closed:
            raise StorageUnavailable(
                f"{', '.join(closed)} cannot be read now, so the start of group {group.name} cannot be stored",
                retry_after=1,
            )
        await self._mirror.open(group.name)

    async def starts(self, group: Group, starts: Mapping[str, int], bounds: TopicBounds) -> Mapping[str, int]:
        """Return where a group without lease state resumes: at its mirrored offsets. Closed queues are left out."""
        if self._mirror is None or group.mode is Mode.BROADCAST:
            return starts
        open_now = [queue for queue in starts if queue not in bounds.closed]
        known = await self._log.mirrored(group, self._mirror, open_now)
        found = {
            queue: starts[queue] if at is None else _within(bounds.queues[queue], at) for queue, at in known.items()
        }
        if any(at != starts[queue] for queue, at in found.items()):
            _log.info("group resumed from mirrored offsets", group=group.name, offsets=known)
        return found

    async def write(self, group: Group) -> None:
        """Write the offsets of a group that moved since the last write."""
        if self._mirror is None or group.mode is Mode.BROADCAST:
            return
        async with self._locks.setdefault(group.name, asyncio.Lock()):
            written = self._written.setdefault(group.name, {})
            moved = await self._moved(group, written)
            while moved:
                for topic, offsets in self._log.by_topic(group, moved).items():
                    await self._mirror.write(group.name, topic, offsets)
                written |= moved
                # Another gateway may have moved the group back during the write.
                now = await self._moved(group, written)
                moved = now if any(at < written[queue] for queue, at in now.items() if queue in written) else {}

    async def _moved(self, group: Group, written: Mapping[str, int]) -> dict[str, int]:
        committed = await self._leases.committed(group.name) or {}
        return {queue: at for queue, at in committed.items() if written.get(queue) != at}

    async def sought(self, group: Group) -> None:
        """Write a group after a seek, and mark it again: a concurrent write of another gateway may be older."""
        self.invalidate(group.name)
        await self.write(group)
        self.invalidate(group.name)

    def invalidate(self, group: str) -> None:
        """Write all offsets of a group again after it moved back: another gateway may have written newer ones."""
        self._written.pop(group, None)
        self.mark_dirty(group)

    async def forget(self, group: str) -> None:
        if self._mirror is None:
            return
        async with self._locks.setdefault(group, asyncio.Lock()):
            self._dirty.discard(group)
            self._written.pop(group, None)
            await self._mirror.forget(group)
        self._locks.pop(group, None)

    async def run_once(self) -> None:
        """Write all dirty groups. A group that fails is written by the next run."""
        async with self._run_lock:
            await self._write_dirty()

    async def _write_dirty(self) -> None:
        names, self._dirty = self._dirty, set()
        groups = self._directory.snapshot.groups
        for name in names:
            group = groups.get(name)
            try:
                if group is not None:
                    await self.write(group)
            except MqgateError as error:
                self._dirty.add(name)
                _log.warning("writing offsets to the brokers failed", group=name, error=error.detail)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval.total_seconds())
            await self.run_once()


def _within(bounds: QueueBounds, at: int) -> int:
    """Return the offset to resume at. Beyond the bounds the queue was recreated, and is read from its start."""
    return bounds.min if at > bounds.max else max(at, bounds.min)
