"""The lease state of one scope in message mode.

A grant is a range of a queue under one epoch, with one bit per message: given, open (still leased), acked, nacked. A
message that is neither open nor acked nor nacked was released, or its lease expired. It then has a FailedMessage, which
says when it is ready again. Until it is granted again, a late settlement still counts. New messages have no state of
their own: the cursor of their queue is the next offset never granted.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from mqgate.core.lease import ExhaustedMessage, Grant, Lease, QueueBounds
from mqgate.core.leases.ranking import Ranking, set_member
from mqgate.core.message import instant
from mqgate.core.tokens import GroupTokens

__all__ = ["FailedMessage", "MessageChanges", "MessageGrant", "MessageQueue", "MessageScope"]

Place = tuple[str, int]
# Measured with CPython 3.11, including the rankings.
_BYTES, _QUEUE_BYTES, _GRANT_BYTES, _FAILED_BYTES = 3_000, 1_200, 600, 500
# A heap is rebuilt when more than half of its entries, and more than these, are outdated.
_MIN_ENTRIES = 64


@dataclass(slots=True)
class FailedMessage:
    """A message that was granted before, or waits for its key (`delivery` 0, no `ready_at`).

    `epoch` and `delivery` are those of its newest grant. Without `ready_at` it is leased, exhausted (`dying`), or waits
    for its key. `is_lease_expired`: the newest delivery failed by lease expiry, which was not reported yet.
    """

    epoch: int
    delivery: int
    ready_at: int | None
    dying: int
    first_at: int
    last_at: int
    reason: str | None
    is_lease_expired: int = 0


@dataclass(slots=True)
class MessageGrant:
    """A grant. `ends` are the ends of messages that were extended, by bit; `until` is the earliest end that is open.

    `again`: its messages were granted before.
    """

    epoch: int
    queue: str
    start: int
    delivery: int
    granted_at: int
    base_until: int
    ends: dict[int, int] | None
    until: int
    given: int
    open: int
    acked: int
    nacked: int
    ended_at: int
    attempt: str | None
    fingerprint: str | None
    serves: int
    returned: int
    client: str
    again: int

    @property
    def is_changed(self) -> bool:
        """Return whether a message of the grant was settled, expired or released."""
        return self.open != self.given or bool(self.acked | self.nacked)

    @property
    def first_open(self) -> int:
        return self.start + (self.open & -self.open).bit_length() - 1 if self.open else self.start

    def end_of(self, number: int) -> int:
        return self.ends.get(number, self.base_until) if self.ends else self.base_until

    def update_until(self) -> None:
        if self.ends:
            self.until = min(map(self.end_of, bits_of(self.open)), default=self.base_until)

    def is_open(self, offset: int) -> bool:
        return offset >= self.start and bool(self.open >> (offset - self.start) & 1)


def bits_of(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, in order."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


@dataclass(slots=True)
class MessageQueue:
    """One queue. `pending_pull` (ordered groups): the grant whose message keys are not known yet.

    `committed` is the first unsettled offset.
    """

    name: str
    head_min: int
    head_max: int
    committed: int
    cursor: int
    revoked_epoch: int = 0
    pending_pull: int = 0
    served_at: int = 0
    last_client: str | None = None
    last_consumed_at: int = 0
    expired: int = 0
    failed: dict[int, FailedMessage] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    offsets_of_key: dict[str, list[int]] = field(default_factory=dict)
    # Heaps of candidates for the first unsettled offset; outdated entries are removed when they reach the top.
    failed_offsets: list[int] = field(default_factory=list)
    open_grants: list[tuple[int, int]] = field(default_factory=list)
    max_entries: int = _MIN_ENTRIES

    @property
    def fresh(self) -> int:
        """Return how many messages were never granted."""
        return self.head_max - max(self.cursor, self.head_min)

    def first_failed(self) -> int | None:
        """Return the first failed offset."""
        offsets, failed = self.failed_offsets, self.failed
        if len(offsets) > 2 * len(failed) + _MIN_ENTRIES:
            offsets[:] = failed
            heapify(offsets)
        while offsets and offsets[0] not in failed:
            heappop(offsets)
        return offsets[0] if offsets else None

    def add_key(self, offset: int, key: str) -> bool:
        """Store the key of a message. Return False if it was known."""
        if offset in self.keys:
            return False
        self.keys[offset] = key
        insort(self.offsets_of_key.setdefault(key, []), offset)
        return True

    def remove_key(self, offset: int) -> int | None:
        """Forget the key of a message. Return the next message of that key."""
        key = self.keys.pop(offset, None)
        if key is None:
            return None
        offsets = self.offsets_of_key[key]
        del offsets[bisect_left(offsets, offset)]
        if offsets:
            return offsets[0]
        del self.offsets_of_key[key]
        return None


@dataclass(slots=True)
class MessageChanges:
    """What changed since the changes were last taken."""

    has_counters: bool = False
    queues: set[str] = field(default_factory=set)
    grants: set[int] = field(default_factory=set)
    failed: set[Place] = field(default_factory=set)
    keys: set[Place] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.has_counters or bool(self.queues or self.grants or self.failed or self.keys)


class MessageScope:
    """The messages of a group, filed by the questions that a receive asks.

    `epoch` is that of the newest grant, `in_flight` the number of leased messages.
    """

    client = ""

    def __init__(self, group: str, incarnation: str, tokens: GroupTokens, epoch: int, in_flight: int) -> None:
        self.group = group
        self.incarnation = incarnation
        self.tokens = tokens
        self.epoch = epoch
        self.in_flight = in_flight
        self.queues: dict[str, MessageQueue] = {}
        # All that have open messages, and some older ones. The store loads the others when a receipt names them.
        self.grants: dict[int, MessageGrant] = {}
        self.attempts: dict[str, set[int]] = {}
        self.changes = MessageChanges()
        self.ends: Ranking[int] = Ranking()
        self.ready: Ranking[Place] = Ranking()
        self.fresh: Ranking[str] = Ranking()
        self.dying: set[Place] = set()
        self.overtaken: set[str] = set()
        self.emptied: set[str] = set()
        self.unsettled: set[str] = set()
        self.pending_pulls: set[str] = set()
        # Queues whose committed offset may have to move.
        self._settled: set[str] = set()

    @property
    def size(self) -> int:
        """Return an estimate of the bytes in memory."""
        failed = sum(len(queue.failed) + len(queue.keys) for queue in self.queues.values())
        return _BYTES + _QUEUE_BYTES * len(self.queues) + _GRANT_BYTES * len(self.grants) + _FAILED_BYTES * failed

    # Loading.

    def add_queue(self, queue: MessageQueue) -> None:
        """File a queue, new or loaded."""
        self.queues[queue.name] = queue
        self.file(queue)

    def add_grant(self, grant: MessageGrant) -> None:
        """File a grant, new or loaded."""
        self.grants[grant.epoch] = grant
        if grant.attempt is not None:
            self.attempts.setdefault(grant.attempt, set()).add(grant.epoch)
        self.file_open(grant)

    def add_failed(self, queue: str, offset: int, failed: FailedMessage) -> None:
        """File a failed message, new or loaded."""
        row = self.queues[queue]
        row.failed[offset] = failed
        heappush(row.failed_offsets, offset)
        self.file_failed(queue, offset, failed)

    def open(self, name: str, start: int, bounds: QueueBounds, now_ms: int) -> None:
        """Add a new queue. A known queue keeps its position."""
        if name not in self.queues:
            self.add_queue(MessageQueue(name, bounds.min, bounds.max, start, start, served_at=now_ms))
            self.changes.queues.add(name)

    # Filing.

    def file(self, queue: MessageQueue) -> None:
        name, fresh, cursor = queue.name, queue.fresh, queue.cursor
        if fresh > 0:
            self.fresh.set(name, queue.served_at)
        else:
            self.fresh.discard(name)
        has_unsettled = queue.committed < cursor
        set_member(self.unsettled, name, is_member=has_unsettled)
        set_member(self.overtaken, name, is_member=has_unsettled and queue.committed < queue.head_min)
        set_member(self.pending_pulls, name, is_member=queue.pending_pull > 0)
        is_emptied = fresh <= 0 and cursor < queue.head_min and not queue.pending_pull
        set_member(self.emptied, name, is_member=is_emptied)

    def file_open(self, grant: MessageGrant) -> None:
        if grant.open:
            self.ends.set(grant.epoch, grant.until)
            self._file_first_open(self.queues[grant.queue], grant)
        else:
            self.ends.discard(grant.epoch)

    def _file_first_open(self, queue: MessageQueue, grant: MessageGrant) -> None:
        heap = queue.open_grants
        if len(heap) > queue.max_entries:
            live = {epoch for _, epoch in heap if epoch in self.ends}
            heap[:] = [(self.grants[epoch].first_open, epoch) for epoch in live]
            heapify(heap)
            queue.max_entries = 2 * len(heap) + _MIN_ENTRIES
        heappush(heap, (grant.first_open, grant.epoch))

    def file_failed(self, queue: str, offset: int, failed: FailedMessage) -> None:
        place = queue, offset
        if failed.ready_at is None:
            self.ready.discard(place)
        else:
            self.ready.set(place, failed.ready_at)
        set_member(self.dying, place, is_member=bool(failed.dying))

    # Changes.

    def change_queue(self, queue: MessageQueue) -> None:
        self.changes.queues.add(queue.name)
        self.file(queue)

    def change_grant(self, grant: MessageGrant) -> None:
        """Record that a grant changed, and file its end again."""
        self.changes.grants.add(grant.epoch)
        grant.update_until()
        if grant.open:
            self.ends.set(grant.epoch, grant.until)
        else:
            self.ends.discard(grant.epoch)
        if grant.attempt is not None and grant.acked | grant.nacked:
            # The attempt can never be repeated with this grant.
            self.forget_attempt(grant.attempt)

    def close(self, grant: MessageGrant, bits: int, now_ms: int) -> None:
        """End the leases of open messages of a grant."""
        grant.open ^= bits
        self.in_flight -= bits.bit_count()
        self.changes.has_counters = True
        if not grant.open:
            grant.ended_at = now_ms
        self.changes.grants.add(grant.epoch)
        self._settled.add(grant.queue)

    def change_failed(self, queue: str, offset: int, failed: FailedMessage) -> None:
        self.changes.failed.add((queue, offset))
        self.file_failed(queue, offset, failed)

    def remove_failed(self, queue: str, offset: int) -> None:
        place = queue, offset
        if self.queues[queue].failed.pop(offset, None) is not None:
            self.changes.failed.add(place)
            self.ready.discard(place)
            self.dying.discard(place)
        self._settled.add(queue)

    def forget_attempt(self, attempt: str) -> None:
        """Let a repeat of the attempt be a new receive."""
        for epoch in self.attempts.pop(attempt, ()):
            self.grants[epoch].attempt = None
            self.changes.grants.add(epoch)

    def leave_attempt(self, grant: MessageGrant) -> None:
        """Let the attempt of a grant refer to its other grants only."""
        if grant.attempt is None:
            return
        epochs = self.attempts[grant.attempt]
        epochs.discard(grant.epoch)
        if not epochs:
            del self.attempts[grant.attempt]
        grant.attempt = None
        self.changes.grants.add(grant.epoch)

    def commit(self) -> None:
        """Move committed offsets to the first message that is not settled."""
        for name in self._settled:
            queue = self.queues[name]
            queue.committed = min(self._first_open(queue), queue.cursor)
            first_failed = queue.first_failed()
            if first_failed is not None and first_failed < queue.committed:
                queue.committed = first_failed
            self.change_queue(queue)
        self._settled.clear()

    def _first_open(self, queue: MessageQueue) -> int:
        heap = queue.open_grants
        while heap:
            first, epoch = heap[0]
            grant = self.grants.get(epoch)
            if grant is None or not grant.open:
                heappop(heap)
            elif grant.first_open == first:
                return first
            else:
                heapreplace(heap, (grant.first_open, epoch))
        return queue.cursor

    def trim(self, max_closed: int) -> bool:
        """Drop the oldest grants without open messages from memory. Return whether there were any.

        All changes must be stored.
        """
        if len(self.grants) - len(self.ends) <= 2 * max_closed:
            return False
        kept = {queue.pending_pull for queue in self.queues.values()}
        closed = [
            epoch
            for epoch, grant in self.grants.items()
            if not grant.open and grant.attempt is None and epoch not in kept
        ]
        for epoch in closed[: max(len(closed) - max_closed, 0)]:
            del self.grants[epoch]
        return True

    def forget(self, epochs: Iterable[int]) -> None:
        """Drop grants whose rows were deleted. A grant that was extended meanwhile is stored again."""
        for epoch in epochs:
            grant = self.grants.get(epoch)
            if grant is None:
                continue
            if grant.open:
                self.changes.grants.add(epoch)
                continue
            self.leave_attempt(grant)
            self.changes.grants.discard(epoch)
            del self.grants[epoch]

    # Values.

    def lease(self, grant: MessageGrant) -> Lease:
        after = grant.start + grant.given.bit_length()
        return Lease(self.group, "", grant.queue, grant.start, after, grant.epoch, self.incarnation)

    def granted(self, grant: MessageGrant) -> Grant:
        times = instant(grant.granted_at), instant(grant.until)
        return Grant(self.lease(grant), grant.delivery, *times, grant.serves)

    def exhausted(self, queue: str, offset: int) -> ExhaustedMessage:
        failed = self.queues[queue].failed[offset]
        lease = Lease(self.group, "", queue, offset, offset + 1, failed.epoch, self.incarnation)
        times = instant(failed.first_at), instant(failed.last_at)
        expired = bool(failed.is_lease_expired)
        return ExhaustedMessage(lease, failed.delivery, *times, failed.reason, is_lease_expired=expired)

    def grants_of(self, attempt: str) -> Sequence[MessageGrant]:
        return [self.grants[epoch] for epoch in sorted(self.attempts.get(attempt, ()))]
