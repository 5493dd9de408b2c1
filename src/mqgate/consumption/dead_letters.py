"""Dead letters: messages whose last allowed delivery failed.

The lease store reports an exhausted message and refuses its receipts from then on. The gateway reads the message from
the log, records it as a dead letter, and then moves the lease state past it. Each step may be repeated: if a gateway
stops in between, or the queue cannot be read now, the next call repeats the work, and the record is stored once.
"""

import asyncio
from collections.abc import Sequence

import structlog

from mqgate.consumption.group_log import GroupLog
from mqgate.consumption.pending_notices import Notices, PendingNotices
from mqgate.core.entries import Group
from mqgate.core.errors import QueueUnavailable, TopicNotFound
from mqgate.core.lease import ExhaustedMessage
from mqgate.events.recorder import EventRecorder
from mqgate.ports.dead_letters import DeadLetter, DeadLetterStore
from mqgate.ports.lease_store import LeaseStore
from mqgate.telemetry.metrics import Metrics

_log = structlog.get_logger()
# More writes would occupy all connections of a pool.
_MAX_CONCURRENT = 8


class DeadLetterWriter:
    def __init__(
        self,
        log: GroupLog,
        leases: LeaseStore,
        dead_letters: DeadLetterStore,
        metrics: Metrics,
        recorder: EventRecorder,
        notices: PendingNotices,
    ) -> None:
        self._log = log
        self._leases = leases
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._recorder = recorder
        self._notices = notices

    async def write_all(self, group: Group, exhausted: Sequence[ExhaustedMessage]) -> list[bool]:
        """Write dead letters concurrently, at most 8 at a time."""
        are_written: list[bool] = []
        for start in range(0, len(exhausted), _MAX_CONCURRENT):
            batch = exhausted[start : start + _MAX_CONCURRENT]
            are_written += await asyncio.gather(*(self.write(group, message) for message in batch))
        return are_written

    async def write(self, group: Group, exhausted: ExhaustedMessage) -> bool:
        """Record a dead letter and move the lease state past it; False if the message cannot be read now."""
        lease = exhausted.lease
        try:
            message = await self._log.original(group, lease.queue, lease.start)
        except (QueueUnavailable, TopicNotFound):
            # The log may be unavailable for a while. The call that led here must not fail because of it.
            return False
        # None: retention deleted the message in the meantime.
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
                self._notices.add((lease.group, lease.client), Notices(expired=1))
                return True
            self._metrics.dead.labels(group.name).inc()
            _log.warning(
                "message dead-lettered",
                group=group.name,
                queue=lease.queue,
                offset=lease.start,
                deliveries=exhausted.deliveries,
                reason=exhausted.reason,
            )
        return True
