"""Leases: the values of the lease store, and the rules of settlement.

A queue has a committed offset, and an epoch that grows with every grant. A settlement carries its lease:

    the incarnation differs                                          -> gone
    the receipt was settled before by the same verb                  -> duplicate; by another verb -> lost
    a seek revoked the epoch, or the epoch is too old to be checked  -> gone
    a newer epoch was granted                                        -> lost; gone if retention deleted its start
    the epoch is current, but retention moved the committed offset   -> gone
    otherwise                                                        -> applied; late_applied if the lease has expired

Only epochs are compared, never clocks, so a slow consumer cannot release or move the lease of another consumer.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from mqgate.core.entries import Group
from mqgate.core.errors import MqgateError

MAX_HOLD = timedelta(hours=12)
AGEING = timedelta(seconds=30)
MEMORY = timedelta(minutes=10)
MAX_SPAN = 65_536
MIN_REMEMBERED = 10_000
# The bits of the returned serves must fit into the integers of every store.
_MAX_SERVES = 50


class QueueBounds(NamedTuple):
    """The first offset that a queue still contains, and the offset of the next message to be stored."""

    min: int
    max: int


class BrokerBoot(NamedTuple):
    """The start time of the broker of a queue, by its own clock, and the first offset stored after it."""

    at_ms: int
    floor: int


class Verb(StrEnum):
    """The kind of a settlement."""

    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"


class SettlementOutcome(StrEnum):
    """The outcome of a settlement. The first three mean that the settlement is done."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    LATE_APPLIED = "late_applied"
    LOST = "lost"
    GONE = "gone"
    INVALID = "invalid"

    @property
    def is_done(self) -> bool:
        return self.is_new or self is SettlementOutcome.DUPLICATE

    @property
    def is_new(self) -> bool:
        """Return whether this settlement changed the lease state."""
        # Compared by identity because the hash of an enum member is computed in Python, which is slow for batches.
        return self is SettlementOutcome.APPLIED or self is SettlementOutcome.LATE_APPLIED


class ReceiveState(StrEnum):
    """Why a receive may be empty."""

    OK = "ok"
    BUSY = "busy"
    PAUSED = "paused"
    RATE_LIMITED = "rate_limited"
    IN_FLIGHT_CAP = "in_flight_cap"


class Lease(NamedTuple):
    """The right to work on the messages [start, next) of a queue. A receipt is a signed lease."""

    group: str
    client: str
    queue: str
    start: int
    next: int
    epoch: int
    incarnation: str


class OffsetRange(NamedTuple):
    """The offsets [start, next) of one queue."""

    queue: str
    start: int
    next: int


class Grant(NamedTuple):
    """A lease that was given out. `serve` counts how often the same attempt received it.

    `lease_expired`: how many messages, from the start on, are delivered again because an earlier lease expired. It is
    reported once, with the first serve.
    """

    lease: Lease
    delivery: int
    granted_at: datetime
    leased_until: datetime
    serve: int = 1
    lease_expired: int = 0


class PullReport(NamedTuple):
    """What a pull found of a grant: the messages before `after`. If `after` is the start of the grant, nothing.

    `kept` (message mode): the offsets that passed the filter, with the message keys that ordered groups need.
    """

    grant: Grant
    after: int
    kept: Mapping[int, str | None] | None = None


class ExhaustedMessage(NamedTuple):
    """A message whose last allowed delivery failed. It must be stored as a dead letter before its queue continues.

    `is_lease_expired`: the last delivery failed because its lease expired.
    """

    lease: Lease
    deliveries: int
    first_at: datetime
    last_at: datetime
    reason: str | None
    is_lease_expired: bool = False


class Settlement(NamedTuple):
    """One ack, nack or extend of a lease. The verified receipt is kept for events only."""

    verb: Verb
    lease: Lease
    through: int | None = None
    delay: timedelta | None = None
    reason: str | None = None
    visibility: timedelta | None = None
    receipt: str = ""


class SettlementResult(NamedTuple):
    """The result of a settlement. `error` gives the reason where the outcome alone does not."""

    outcome: SettlementOutcome
    exhausted: ExhaustedMessage | None = None
    leased_until: datetime | None = None
    error: MqgateError | None = None


class AcquireRequest(NamedTuple):
    """One receive as the lease store sees it. A tuple, because frozen dataclasses are slow to create.

    `bounds`: the queues whose bounds changed since the last call; the store remembers the others.
    `closed`: queues that cannot be read now. Nothing in them is granted or exhausted, and they do not affect
    `next_at`. Their state does not change, and their leases can be settled.
    `boots`: after a broker restart its last messages may be lost, and other messages may be stored at their offsets. A
    store whose leases outlive the broker rewinds such queues to the first message stored after the start.
    `wait`: how long the receive parks if nothing is granted. It is notified of changes made by other gateways.
    `fingerprint`: the attempt_fingerprint, which must be the same when an attempt is repeated.
    `last_append_ms`: the store times of the newest messages. A queue that had no backlog has waited since then; other
    queues wait from now on.
    `are_bounds_optional`: the store may ignore the bounds if `max_count` messages can be granted without them.
    """

    group: Group
    client: str
    max_count: int
    visibility: timedelta
    bounds: Mapping[str, QueueBounds]
    polled_by: str = ""
    address: str = ""
    attempt: str | None = None
    settlements: Sequence[Settlement] = ()
    has_other_waiters: bool = False
    closed: frozenset[str] = frozenset()
    boots: Mapping[str, BrokerBoot] = MappingProxyType({})
    wait: timedelta = timedelta(0)
    fingerprint: str = ""
    last_append_ms: Mapping[str, int] = MappingProxyType({})
    are_bounds_optional: bool = False


class AcquireResult(NamedTuple):
    """The result of a receive. If `state_exists` is false, the state must be created first.

    `lost`: ranges that retention deleted. They are found when they would be granted, or when nothing else is ready.
    `has_more` (only if the request has `has_other_waiters`): another receive could be granted messages now.
    `is_span_full`: new messages exist, but too many messages before them are unsettled (MAX_SPAN).
    `unknown_queues`: queues in `bounds` that the state does not contain. Nothing is granted: add them and repeat.
    `next_at`: when messages may become ready by time alone (lease expiry, end of a delay, new tokens).
    `are_bounds_applied`: false if the store ignored optional bounds. They must be reported again.
    """

    state_exists: bool
    settled: Sequence[SettlementResult] = ()
    grants: Sequence[Grant] = ()
    state: ReceiveState = ReceiveState.OK
    lost: Sequence[OffsetRange] = ()
    rewound: int = 0
    exhausted: Sequence[ExhaustedMessage] = ()
    next_at: datetime | None = None
    has_more: bool = False
    is_span_full: bool = False
    unknown_queues: Sequence[str] = ()
    are_bounds_applied: bool = True

    @property
    def expired(self) -> int:
        """Return how many messages retention deleted."""
        return sum(deleted.next - deleted.start for deleted in self.lost)


UNKNOWN = AcquireResult(state_exists=False)


class Position(NamedTuple):
    """The position of a group, or of one broadcast client, in a queue."""

    queue: str
    min: int
    max: int
    committed: int
    cursor: int
    ready: int
    leased: int
    waiting: int
    locked_until: datetime | None
    last_client: str | None
    last_consumed_at: datetime | None
    attempts: int
    is_blocked: bool
    expired: int
    epoch: int

    @property
    def lag(self) -> int:
        return self.ready + self.leased + self.waiting


class SeekResult(NamedTuple):
    """The effect of a seek, or of its dry run, on one queue.

    `done_before` and `done_behind` (message mode): how many messages had been settled out of order between the old and
    the new position, and after both.
    """

    queue: str
    old: int
    new: int
    done_before: int = 0
    done_behind: int = 0

    @property
    def skipped(self) -> int:
        """Return how many unsettled messages are skipped."""
        return max(self.new - self.old, 0) - self.done_before

    @property
    def repeated(self) -> int:
        """Return how many settled messages are delivered again."""
        return max(self.old - self.new, 0) + self.done_behind


class ClientInfo(NamedTuple):
    """One consumer process of a group, for operators. `holds` are the queues it has leased."""

    name: str
    address: str
    first_seen: datetime
    last_seen: datetime
    holds: Sequence[str]


class QueueLeaseState(NamedTuple):
    """The stored lease state of the queue of a settlement."""

    incarnation: str
    epoch: int
    revoked_epoch: int
    min: int
    committed: int
    leased_until: datetime


def decide_outcome(
    verb: Verb, lease: Lease, queue: QueueLeaseState | None, spent_by: Verb | None, now: datetime
) -> SettlementOutcome:
    """Return the outcome of a settlement, by the table at the top of this module."""
    if queue is None or queue.incarnation != lease.incarnation:
        return SettlementOutcome.GONE
    if spent_by is not None:
        return SettlementOutcome.DUPLICATE if spent_by is verb else SettlementOutcome.LOST
    if lease.epoch <= queue.revoked_epoch:
        return SettlementOutcome.GONE
    if lease.epoch != queue.epoch:
        return SettlementOutcome.GONE if lease.start < queue.min else SettlementOutcome.LOST
    if lease.start != queue.committed:
        return SettlementOutcome.GONE
    return SettlementOutcome.APPLIED if now < queue.leased_until else SettlementOutcome.LATE_APPLIED


def attempt_fingerprint(max_count: int, visibility: timedelta | None) -> str:
    """Return the parameters that a repeated attempt must match. None stands for the default of the group."""
    return f"{max_count}:{'' if visibility is None else visibility // timedelta(milliseconds=1)}"


def mark_serve_returned(returned: int, serve: int) -> int:
    """Return the bit set of the serves whose responses were not delivered, with one more serve added."""
    return returned | 1 << serve - 1 if serve <= _MAX_SERVES else returned


def all_serves_returned(returned: int, serves: int) -> bool:
    """Return whether no response of a lease was delivered. The store cannot know in which order responses were sent.

    A lease with more than _MAX_SERVES serves is left to expire.
    """
    return serves <= _MAX_SERVES and returned == (1 << serves) - 1


def batch_size(max_count: int, attempt: int, max_attempts: int) -> int:
    """Return the batch size of an attempt: 1 in the second half of the attempts, so that only one message can fail."""
    return 1 if attempt > max_attempts // 2 else max_count
