"""The lease state of one scope in queue and broadcast mode.

A queue is free (not held) or held until `free_at`. The end of a lease changes nothing by itself: the next step finds
that `free_at` has passed. The epoch stays current until the next grant, so a late ack counts until then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mqgate.core.lease import QueueBounds, Verb
from mqgate.core.leases.ranking import Ranking, set_member
from mqgate.core.tokens import GroupTokens

__all__ = ["QueueChanges", "QueueLease", "QueueScope", "SpentReceipt"]

# Measured with CPython 3.11, including the rankings.
_BYTES, _QUEUE_BYTES, _SPENT_BYTES = 3_000, 1_200, 200
NOT_EXHAUSTED, LAST_ATTEMPT, EXHAUSTED = 0, 1, 2


@dataclass(slots=True)
class QueueLease:
    """One queue. `exhausted`: LAST_ATTEMPT once the last attempt was granted, EXHAUSTED once that failed.

    `leap` is added to the next epoch, after a power cut. Leases up to `revoked_epoch` are gone. `serves` counts how
    often the newest batch was returned to its attempt; it is 0 after a batch ended other than by lease expiry.
    `waiting_since`: not served since then, while there is a backlog.
    """

    name: str
    head_min: int
    head_max: int
    committed: int
    epoch: int = 0
    leap: int = 0
    revoked_epoch: int = 0
    batch_next: int = 0
    granted_at: int = 0
    leased_until: int = 0
    held: int = 0
    free_at: int = 0
    attempt: str | None = None
    fingerprint: str | None = None
    serves: int = 0
    returned: int = 0
    attempts: int = 0
    exhausted: int = NOT_EXHAUSTED
    first_at: int = 0
    reason: str | None = None
    waiting_since: int = 0
    last_client: str | None = None
    last_consumed_at: int = 0
    expired: int = 0

    @property
    def first(self) -> int:
        """Return the first offset that can be granted."""
        return max(self.committed, self.head_min)

    @property
    def backlog(self) -> int:
        return self.head_max - max(self.committed, self.head_min)

    def next_epoch(self) -> None:
        self.epoch += 1 + self.leap
        self.leap = 0

    def release(self, now_ms: int) -> None:
        """End the lease, the attempt and its serves."""
        self.leased_until = now_ms
        self.held = 0
        self.attempt = None
        self.serves = 0

    def forget_attempts(self) -> None:
        """Start to count the attempts at a new committed offset."""
        self.attempts = 0
        self.first_at = 0
        self.reason = None


@dataclass(frozen=True, slots=True)
class SpentReceipt:
    """A receipt that was acked or nacked."""

    queue: str
    epoch: int
    verb: Verb
    at: int


@dataclass(slots=True)
class QueueChanges:
    """What changed since the changes were last taken. `forgotten` are row numbers of spent receipts."""

    queues: set[str] = field(default_factory=set)
    spent: list[SpentReceipt] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.queues or self.spent or self.forgotten)


class QueueScope:
    """The queues of a group, or of one broadcast client, filed by the questions that a receive asks."""

    def __init__(self, group: str, client: str, incarnation: str, tokens: GroupTokens) -> None:
        self.group = group
        self.client = client
        self.incarnation = incarnation
        self.tokens = tokens
        self.queues: dict[str, QueueLease] = {}
        # Of the current epochs, and of some older ones. The store loads the others when a receipt names them.
        self.spent: dict[tuple[str, int], Verb] = {}
        self.changes = QueueChanges()
        self.by_age: Ranking[str] = Ranking()
        self.by_backlog: Ranking[str] = Ranking()
        self.held: Ranking[str] = Ranking()
        self.exhausted: set[str] = set()
        self.emptied: set[str] = set()
        self.with_backlog: set[str] = set()
        self._queue_of: dict[str, str] = {}
        self._attempt_of: dict[str, str] = {}

    @property
    def size(self) -> int:
        """Return an estimate of the bytes in memory."""
        return _BYTES + _QUEUE_BYTES * len(self.queues) + _SPENT_BYTES * len(self.spent)

    def add(self, queue: QueueLease) -> None:
        """File a queue, new or loaded."""
        self.queues[queue.name] = queue
        self._file(queue)

    def open(self, name: str, start: int, bounds: QueueBounds, now_ms: int) -> None:
        """Add a new queue. A known queue keeps its position."""
        if name not in self.queues:
            self.add(QueueLease(name, bounds.min, bounds.max, start, waiting_since=now_ms))
            self.changes.queues.add(name)

    def change(self, queue: QueueLease) -> None:
        """Record that a queue changed, and file it again."""
        self.changes.queues.add(queue.name)
        self._file(queue)

    def spend(self, queue: str, epoch: int, verb: Verb, now_ms: int) -> None:
        self.spent[queue, epoch] = verb
        self.changes.spent.append(SpentReceipt(queue, epoch, verb, now_ms))

    def of_attempt(self, attempt: str, now_ms: int) -> QueueLease | None:
        """Return the queue that this attempt was granted, while its lease is unchanged."""
        name = self._queue_of.get(attempt)
        queue = None if name is None else self.queues[name]
        return queue if queue is not None and queue.leased_until > now_ms else None

    def set_attempt(self, queue: QueueLease, attempt: str | None, fingerprint: str) -> None:
        """Let an attempt refer to this queue only, though an earlier lease of it may be extended late."""
        earlier = None if attempt is None else self._queue_of.get(attempt)
        if earlier is not None and earlier != queue.name:
            self.queues[earlier].attempt = None
            self.change(self.queues[earlier])
        queue.attempt = attempt
        queue.fingerprint = None if attempt is None else fingerprint

    def trim(self, max_spent: int) -> bool:
        """Drop the oldest spent receipts from memory, except those of current epochs. Return whether there were any.

        All changes must be stored.
        """
        if len(self.spent) <= 2 * max_spent:
            return False
        old = [key for key in self.spent if self.queues[key[0]].epoch != key[1]]
        for key in old[: max(len(self.spent) - max_spent, 0)]:
            del self.spent[key]
        return True

    def forget(self, spent: Iterable[tuple[int, str, int]]) -> None:
        """Forget spent receipts, given as row number, queue and epoch. Leases up to their epochs are gone."""
        for number, name, epoch in spent:
            queue = self.queues[name]
            queue.revoked_epoch = max(queue.revoked_epoch, epoch)
            self.spent.pop((name, epoch), None)
            self.changes.forgotten.append(number)
            self.change(queue)

    def _file(self, queue: QueueLease) -> None:
        name, backlog = queue.name, queue.backlog
        filed_attempt = self._attempt_of.get(name)
        if filed_attempt != queue.attempt:
            self._file_attempt(name, filed_attempt, queue.attempt)
        is_open = not queue.held and not queue.exhausted
        if is_open and backlog > 0:
            self.by_age.set(name, queue.waiting_since)
            self.by_backlog.set(name, (-backlog, queue.last_consumed_at))
        else:
            self.by_age.discard(name)
            self.by_backlog.discard(name)
        if queue.held:
            self.held.set(name, queue.free_at)
        else:
            self.held.discard(name)
        set_member(self.exhausted, name, is_member=queue.exhausted > 0)
        set_member(self.with_backlog, name, is_member=backlog > 0)
        set_member(self.emptied, name, is_member=is_open and backlog <= 0 and queue.committed < queue.head_min)

    def _file_attempt(self, name: str, filed: str | None, attempt: str | None) -> None:
        if filed is not None:
            del self._queue_of[filed]
            del self._attempt_of[name]
        if attempt is not None:
            self._queue_of[attempt] = name
            self._attempt_of[name] = attempt
