"""Dead letters: what becomes of a message that failed for the last time.

The lease store names it (and from then on refuses its receipts), we read it from the log, record it, and then let the
queue go on. Each step may be repeated: a gateway that dies in between leaves the work to the next call that looks,
and the record is kept once. So does a queue that cannot be read now.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from mqgate.consumption.group_log import GroupLog
from mqgate.core.entries import Group
from mqgate.core.errors import QueueUnavailable, TopicNotFound
from mqgate.core.lease import ExhaustedMessage
from mqgate.events.recorder import EventRecorder
from mqgate.ports.dead_letters import DeadLetter, DeadLetterStore
from mqgate.ports.lease_store import LeaseStore
from mqgate.telemetry.metrics import Metrics

_log = structlog.get_logger()
# More would take all connections of a pool, which others need as well.
_AT_ONCE = 8


class DeadLetterWriter:
    """`expired` hears in which scope retention took a message before it could be kept."""

    def __init__(
        self,
        log: GroupLog,
        leases: LeaseStore,
        dead_letters: DeadLetterStore,
        metrics: Metrics,
        recorder: EventRecorder,
        expired: Callable[[tuple[str, str]], None],
    ) -> None:
        self._log = log
        self._leases = leases
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._recorder = recorder
        self._expired = expired

    async def bury_all(self, group: Group, exhausted: Sequence[ExhaustedMessage]) -> list[bool]:
        """Some at a time, whose writes are stored together."""
        done: list[bool] = []
        for start in range(0, len(exhausted), _AT_ONCE):
            some = exhausted[start : start + _AT_ONCE]
            done += await asyncio.gather(*(self.write(group, each) for each in some))
        return done

    async def write(self, group: Group, exhausted: ExhaustedMessage) -> bool:
        """Record a dead message and let its queue go on; False: it cannot be read now, a later look will do it."""
        lease = exhausted.lease
        try:
            message = await self._log.original(group, lease.queue, lease.start)
        except (QueueUnavailable, TopicNotFound):
            # Its log may only be out of sight; what brought us here was done, and is not to be refused for it.
            return False
        # None there: retention took it in the meantime, there is nothing left to keep.
        if message is not None:
            await self._dead_letters.record(
                DeadLetter(
                    group=group.name,
                    client=lease.client,
                    message=message,
                    deliveries=exhausted.deliveries,
                    first_at=exhausted.first_at,
                    last_at=exhausted.last_at,
                    reason=exhausted.reason,
                )
            )
        if await self._leases.settle_dead(group, exhausted, is_expired=message is None):
            self._recorder.dead(group, exhausted, message)
            if message is None:
                self._metrics.expired.labels(group.name).inc()
                self._expired((lease.group, lease.client))
                return True
            self._metrics.dead.labels(group.name).inc()
            _log.warning(
                "message died",
                group=group.name,
                queue=lease.queue,
                offset=lease.start,
                deliveries=exhausted.deliveries,
                reason=exhausted.reason,
            )
        return True
