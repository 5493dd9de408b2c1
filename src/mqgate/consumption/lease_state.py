"""Makes lease state where there is none: of a group, of a broadcast client, of a queue that came later.

A group begins at its start; if its lease state was lost it goes on where the mirror says, and a queue whose mirror
cannot be read now is not opened: when it can, it is a stranger.
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
        """Make a new group's state, and write down where it begins; a broadcast client's is made when it comes."""
        if group.mode is not Mode.BROADCAST:
            await self._mirror.open(group)
            await self.open(group, "")
            await self._mirror.write(group)

    async def open(self, group: Group, client: str) -> bool:
        """Make the state of a group or a broadcast client at the group's start; True if it tells a client so."""
        log = self._log
        # What was stored before it began is not for it.
        bounds = await (log.bounds(group) if group.start == "earliest" else log.current_bounds(group))
        instant = None if group.start in {"earliest", "latest"} else parse_instant(group.start, "start")
        starts = await log.starts(group, bounds.queues, instant)
        known = await self._mirror.starts(group, starts, bounds)
        return await self._leases.create_state(group, client, known, bounds.queues) and group.mode is Mode.BROADCAST

    async def add_queues(self, group: Group, client: str, unknown_queues: Sequence[str]) -> frozenset[str]:
        """Open queues that came later, from their first message; those that cannot be opened yet."""
        found: dict[str, int] = {}
        try:
            bounds = await self._log.bounds(group)
            starts = {queue: bounds.queues[queue].min for queue in unknown_queues if queue in bounds.queues}
            known = await self._mirror.starts(group, starts, bounds)
            found = {queue: known[queue] for queue in starts if queue in known}
            if found:
                await self._leases.create_state(group, client, found, bounds.queues)
        except Busy as error:
            _log.info("queues are opened later", group=group.name, queues=unknown_queues, error=error.detail)
            found = {}
        return frozenset(unknown_queues) - found.keys()
