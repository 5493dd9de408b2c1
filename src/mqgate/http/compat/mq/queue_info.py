"""queueInfo: what the dialect tells about a queue with every fetch, without asking the lease store again.

Exact: the queue, committedOffset, maxOffset (the log's newest, hence newerMaxOffset is always -1),
lockTimestamp, firstConsume (the first epoch is the first grant). Approximated: lastConsumeTimestamp and
lastConsumeClientIp are what this process saw; a restart forgets them. Without a batch there is no queue to
tell about: any of the topic's is named, with committedOffset at its end, or -1 (not looked up) while paused
or rate limited. The offset lists read the lease store and are exact.
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


class _Seen(NamedTuple):
    at_ms: int
    address: str


def message_queue(topic: str, queue: str) -> MessageQueue:
    broker, _, number = queue.rpartition(":")
    return MessageQueue(topic, broker, int(number))


class QueueInfos:
    def __init__(self, log: MessageLog) -> None:
        self._log = log
        # Asked for by difference, so that a fetch costs the same with 8 queues and with 256.
        self._versions: dict[str, int] = {}
        self._ends: dict[str, dict[str, QueueBounds]] = {}
        self._seen: OrderedDict[tuple[str, str, str], _Seen] = OrderedDict()

    async def of_grant(self, group: Group, grant: Grant, address: str) -> QueueInfo:
        """The queue of a batch just given, and who had the one before."""
        lease = grant.lease
        head = (await self._heads(group.topic)).get(lease.queue)
        locked_at = milliseconds(grant.granted_at)
        before = self._remember((group.name, lease.client, lease.queue), _Seen(locked_at, address))
        return QueueInfo(
            message_queue=message_queue(group.topic, lease.queue),
            # A queue that is the group's own is not the topic's: its end is at least where the batch ends.
            max_offset=head.max if head else lease.next,
            committed_offset=lease.start,
            lock_timestamp=locked_at,
            last_consume_timestamp=before.at_ms if before else 0,
            last_consume_client_ip=before.address if before else UNSET,
            first_consume=lease.epoch == 1,
        )

    async def of_nothing(self, group: Group, state: ReceiveState) -> QueueInfo:
        queue, head = next(iter((await self._heads(group.topic)).items()))
        return QueueInfo(
            message_queue=message_queue(group.topic, queue),
            max_offset=head.max,
            committed_offset=head.max if state is ReceiveState.OK else _NONE,
        )

    async def _heads(self, topic: str) -> Mapping[str, QueueBounds]:
        news = await self._log.bounds(topic, self._versions.get(topic, 0))
        ends = self._ends.setdefault(topic, {})
        # An answer older than what is known by now would put ends back.
        if news.version >= self._versions.get(topic, 0):
            self._versions[topic] = news.version
            ends.update(news.queues)
        return ends

    def _remember(self, place: tuple[str, str, str], seen: _Seen) -> _Seen | None:
        before = self._seen.pop(place, None)
        self._seen[place] = seen
        if len(self._seen) > _MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return before


def of_position(group: Group, position: Position, addresses: Mapping[str, str]) -> QueueInfo:
    """A queue as the lease store has it; a lock that was extended seems younger than it is."""
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
