"""Keeps a second copy of committed offsets beside the messages, and begins from it where lease state was lost.

Groups at work are written every few seconds, only the queues that moved; a seek backwards before it is answered, so
that what it asked for again is not skipped should the lease state be lost a moment later. Broadcast clients are not
written: middleware knows no such thing.
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
        self._touched: set[str] = set()
        self._written: dict[str, dict[str, int]] = {}
        # One write per group at a time: an older write that ends later would undo a seek.
        self._turns: dict[str, asyncio.Lock] = {}
        self._round = asyncio.Lock()
        self._background = Background(self._loop)

    def start(self) -> None:
        if self._mirror is not None:
            self._background.start()

    async def stop(self) -> None:
        """Write the remaining offsets and stop."""
        if await self._background.stop():
            await self.run_once()

    def touched(self, group: str) -> None:
        """Mark a group whose offsets may have moved."""
        if self._mirror is not None:
            self._touched.add(group)

    async def open(self, group: Group) -> None:
        """Make a new group known. Raises StorageUnavailable while a queue cannot be read: nobody can tell its start."""
        if self._mirror is None or group.mode is Mode.BROADCAST:
            return
        closed = sorted((await self._log.bounds(group)).closed)
        if closed:
            raise StorageUnavailable(
                f"{', '.join(closed)} cannot be read now, so where group {group.name} begins there cannot be kept",
                retry_after=1,
            )
        await self._mirror.open(group.name)

    async def starts(self, group: Group, starts: Mapping[str, int], bounds: TopicBounds) -> Mapping[str, int]:
        """Where a group without lease state goes on: where it stood; without the queues of which nobody can tell."""
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
        """Write the offsets of a group that moved."""
        if self._mirror is None or group.mode is Mode.BROADCAST:
            return
        async with self._turns.setdefault(group.name, asyncio.Lock()):
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
        """A group was moved: write it before that is answered; and once more later, should another overtake us."""
        self.doubt(group.name)
        await self.write(group)
        self.doubt(group.name)

    def doubt(self, group: str) -> None:
        """A group went back: of what we wrote, another gateway may have written more since. All is written again."""
        self._written.pop(group, None)
        self.touched(group)

    async def forget(self, group: str) -> None:
        if self._mirror is None:
            return
        async with self._turns.setdefault(group, asyncio.Lock()):
            self._touched.discard(group)
            self._written.pop(group, None)
            await self._mirror.forget(group)
        self._turns.pop(group, None)

    async def run_once(self) -> None:
        """Write all marked groups. A group that fails is written by the next run."""
        async with self._round:
            await self._write_touched()

    async def _write_touched(self) -> None:
        names, self._touched = self._touched, set()
        groups = self._directory.snapshot.groups
        for name in names:
            group = groups.get(name)
            try:
                if group is not None:
                    await self.write(group)
            except MqgateError as error:
                self._touched.add(name)
                _log.warning("writing offsets to the brokers failed", group=name, error=error.detail)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval.total_seconds())
            await self.run_once()


def _within(ends: QueueBounds, at: int) -> int:
    """Return the offset to resume at. Beyond the bounds the queue was recreated, and is read from its start."""
    return ends.min if at > ends.max else max(at, ends.min)
