"""Creates missing lease state: of a group, of a broadcast client, of a new queue.

A group starts at its configured start. If its lease state was lost, it resumes at its mirrored offsets. A queue whose
mirror cannot be read now is left out, and is an unknown queue as soon as it can be read.
"""

from collections.abc import Sequence

import structlog

from mqgate.consumption.group_log import GroupLog
from mqgate.consumption.offset_mirror import OffsetMirrorService
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import Busy
from mqgate.core.times import parse_instant
from mqgate.ports.lease_store import LeaseStore

__all__ = ["LeaseStateInitializer"]

_log = structlog.get_logger()


class LeaseStateInitializer:
    def __init__(self, log: GroupLog, leases: LeaseStore, mirror: OffsetMirrorService) -> None:
        self._log = log
        self._leases = leases
        self._mirror = mirror

    async def register(self, group: Group) -> None:
        """Create the state of a new group and mirror its start. A broadcast client gets its state when it receives."""
        if group.mode is not Mode.BROADCAST:
            await self._mirror.open(group)
            await self.open(group, "")
            await self._mirror.write(group)

    async def open(self, group: Group, client: str) -> bool:
        """Create the state of a group or a broadcast client; return True if the client must be notified."""
        log = self._log
        # Messages that were stored before the client was registered are not delivered to it.
        bounds = await (log.bounds(group) if group.start == "earliest" else log.current_bounds(group))
        instant = None if group.start in {"earliest", "latest"} else parse_instant(group.start, "start")
        starts = await log.starts(group, bounds.queues, instant)
        known = await self._mirror.starts(group, starts, bounds)
        return await self._leases.create_state(group, client, known, bounds.queues) and group.mode is Mode.BROADCAST

    async def add_queues(self, group: Group, client: str, unknown_queues: Sequence[str]) -> frozenset[str]:
        """Add new queues from their first message on; return those that cannot be added yet."""
        found: dict[str, int] = {}
        try:
            bounds = await self._log.bounds(group)
            starts = {queue: bounds.queues[queue].min for queue in unknown_queues if queue in bounds.queues}
            known = await self._mirror.starts(group, starts, bounds)
            found = {queue: known[queue] for queue in starts if queue in known}
            if found:
                await self._leases.create_state(group, client, found, bounds.queues)
        except Busy as error:
            _log.info("adding queues postponed", group=group.name, queues=unknown_queues, error=error.detail)
            found = {}
        return frozenset(unknown_queues) - found.keys()
