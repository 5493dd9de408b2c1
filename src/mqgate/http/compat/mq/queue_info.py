"""queueInfo: the state of a queue that every fetch returns, without another call to the lease store.

Exact members: the queue, committedOffset, maxOffset (read from the log, hence newerMaxOffset is always -1),
lockTimestamp, firstConsume (the first epoch is the first grant). Approximate members: lastConsumeTimestamp and
lastConsumeClientIp contain what this process observed since its start. A fetch without a batch returns any queue of the
topic, with committedOffset at its end, or -1 (unknown) while the group is paused or rate limited. The offset lists read
the lease store and are exact.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType

from mqgate.core.entries import Group
from mqgate.core.lease import Grant, Position, QueueBounds, ReceiveState
from mqgate.core.message import milliseconds
from mqgate.ports.message_log import MessageLog

_NONE = -1
_MAX_REMEMBERED = 10_000


class MessageQueue(Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


class QueueInfo(Struct, rename="camel", kw_only=True):
    message_queue: MessageQueue
    max_offset: int
    committed_offset: int
    lock_timestamp: int = 0
    last_consume_timestamp: int = 0
    last_consume_client_ip: str | UnsetType = UNSET
    first_consume: bool = False
    newer_max_offset: int = _NONE


class _LastConsume(NamedTuple):
    at_ms: int
    address: str


def message_queue(topic: str, queue: str) -> MessageQueue:
    broker, _, number = queue.rpartition(":")
    return MessageQueue(topic, broker, int(number))


class QueueInfos:
    """Builds the queueInfo of fetches."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        # Only changed bounds are read, so that the cost of a fetch does not depend on the number of queues.
        self._versions: dict[str, int] = {}
        self._bounds: dict[str, dict[str, QueueBounds]] = {}
        self._last_consumes: OrderedDict[tuple[str, str, str], _LastConsume] = OrderedDict()

    async def of_grant(self, group: Group, grant: Grant, address: str) -> QueueInfo:
        """Return the queue of a granted batch, with the previous consumer."""
        lease = grant.lease
        bounds = (await self._current_bounds(group.topic)).get(lease.queue)
        locked_at = milliseconds(grant.granted_at)
        before = self._remember((group.name, lease.client, lease.queue), _LastConsume(locked_at, address))
        return QueueInfo(
            message_queue=message_queue(group.topic, lease.queue),
            # The private queue of a group is not in the bounds of the topic. Its end is at least the end of the batch.
            max_offset=bounds.max if bounds else lease.next,
            committed_offset=lease.start,
            lock_timestamp=locked_at,
            last_consume_timestamp=before.at_ms if before else 0,
            last_consume_client_ip=before.address if before else UNSET,
            first_consume=lease.epoch == 1,
        )

    async def of_nothing(self, group: Group, state: ReceiveState) -> QueueInfo:
        """Return any queue of the topic, for a fetch without a batch."""
        queue, bounds = next(iter((await self._current_bounds(group.topic)).items()))
        return QueueInfo(
            message_queue=message_queue(group.topic, queue),
            max_offset=bounds.max,
            committed_offset=bounds.max if state is ReceiveState.OK else _NONE,
        )

    async def _current_bounds(self, topic: str) -> Mapping[str, QueueBounds]:
        changes = await self._log.bounds(topic, self._versions.get(topic, 0))
        bounds = self._bounds.setdefault(topic, {})
        # A response that is older than the known bounds would move them back.
        if changes.version >= self._versions.get(topic, 0):
            self._versions[topic] = changes.version
            bounds.update(changes.queues)
        return bounds

    def _remember(self, key: tuple[str, str, str], consume: _LastConsume) -> _LastConsume | None:
        before = self._last_consumes.pop(key, None)
        self._last_consumes[key] = consume
        if len(self._last_consumes) > _MAX_REMEMBERED:
            self._last_consumes.popitem(last=False)
        return before


def of_position(group: Group, position: Position, addresses: Mapping[str, str]) -> QueueInfo:
    """Return a queue as the lease store reports it. The lock timestamp of an extended lease is too recent."""
    until, consumed = position.locked_until, position.last_consumed_at
    return QueueInfo(
        message_queue=message_queue(group.topic, position.queue),
        max_offset=position.max,
        committed_offset=position.committed,
        lock_timestamp=milliseconds(until - group.visibility) if until else 0,
        last_consume_timestamp=milliseconds(consumed) if consumed else 0,
        last_consume_client_ip=addresses.get(position.last_client or "", UNSET),
        first_consume=position.last_client is None,
    )
