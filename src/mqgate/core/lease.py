"""Leases: what a group holds, and what a settlement of it means.

A queue has an epoch that grows with every grant and a committed offset. A settlement carries the lease it was given:

    the incarnation differs                                       -> gone
    the same receipt was settled before, by the same verb         -> duplicate, by another -> lost
    a seek swept the epoch away, or it is too old to tell         -> gone
    a newer epoch was granted                                     -> lost; gone, if retention took its first message
    the epoch is current, but committed moved (retention)         -> gone
    otherwise it is done: applied, or late_applied when the lease had ended and nobody had taken the queue

Epochs are compared for equality and order, never clocks, so a slow consumer cannot free or move what is another's.
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
# What fits into the whole numbers of every store.
_MOST_SERVES = 50


class QueueBounds(NamedTuple):
    """A queue's ends: the first offset it still holds, and the next one it will store at."""

    min: int
    max: int


class BrokerBoot(NamedTuple):
    """When a queue's broker was started, by its own clock, and the first offset that was stored after that."""

    at_ms: int
    floor: int


class Verb(StrEnum):
    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"


class SettlementOutcome(StrEnum):
    """What became of a settlement; the first three changed something or did so before."""

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
        """Whether this very settlement changed something."""
        # By identity: an enum's hash is computed in Python, and a batch asks this dozens of times.
        return self is SettlementOutcome.APPLIED or self is SettlementOutcome.LATE_APPLIED


class ReceiveState(StrEnum):
    """Why a receive may be empty."""

    OK = "ok"
    BUSY = "busy"
    PAUSED = "paused"
    RATE_LIMITED = "rate_limited"
    IN_FLIGHT_CAP = "in_flight_cap"


class Lease(NamedTuple):
    """The right to work on a batch of a queue; a receipt is this, signed."""

    group: str
    client: str
    queue: str
    start: int
    next: int
    epoch: int
    incarnation: str


class OffsetRange(NamedTuple):
    """Messages of a queue, one behind the other, in [start, next)."""

    queue: str
    start: int
    next: int


class Grant(NamedTuple):
    """A lease just given, or given before to the same attempt; `serve` counts how often it was.

    `lapsed`: so many messages from its start on are given again because a lease before had ended without a settlement.
    Told once, with the first serve.
    """

    lease: Lease
    delivery: int
    granted_at: datetime
    leased_until: datetime
    serve: int = 1
    lease_expired: int = 0


class PullReport(NamedTuple):
    """What the pull found of a grant: everything before `after`; at the grant's start, nothing at all.

    `kept` (message mode): only these offsets are wanted, the others are filtered out; with their keys, for order.
    """

    grant: Grant
    after: int
    kept: Mapping[int, str | None] | None = None


class ExhaustedMessage(NamedTuple):
    """A message whose last delivery failed: it must be recorded as dead before its queue goes on.

    `is_lease_expired`: by a lease that ended without a settlement.
    """

    lease: Lease
    deliveries: int
    first_at: datetime
    last_at: datetime
    reason: str | None
    is_lease_expired: bool = False


class Settlement(NamedTuple):
    """One ack, nack or extend of a lease; the receipt that proved it is for the record only."""

    verb: Verb
    lease: Lease
    through: int | None = None
    delay: timedelta | None = None
    reason: str | None = None
    visibility: timedelta | None = None
    receipt: str = ""


class SettlementResult(NamedTuple):
    """What became of a settlement; `error` says why, where the outcome alone does not."""

    outcome: SettlementOutcome
    exhausted: ExhaustedMessage | None = None
    leased_until: datetime | None = None
    error: MqgateError | None = None


class AcquireRequest(NamedTuple):
    """One receive, as the lease store sees it; a tuple, as its answer: frozen dataclasses are slow to make.

    `heads` holds the queues whose ends changed since the last call; the store remembers the others.
    `closed`: queues that cannot be read now. Nothing of them is granted or doomed, and they are no reason to try
    again soon; what they hold stays as it is, and their leases are settled as always.
    `boots`: of a broker that was started anew the last messages may be lost, and others stored at their offsets. Where
    it matters (leases that outlive a broker) its queues go back to the first message stored after the start.
    `wait`: if nothing is granted somebody waits for so long, and wants to hear of what is done on other gateways.
    `shape`: what the attempt asks for (attempt_fingerprint); the same attempt must ask for the same.
    `rose`: when the newest messages of these queues were stored. A queue that had no backlog before has waited to be
    served since then, though nobody asked; those that are not among them wait from now on.
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
    shape: str = ""
    last_append_ms: Mapping[str, int] = MappingProxyType({})


class AcquireResult(NamedTuple):
    """What a receive was given. `state_exists` false: no state for this group or client, open it first.

    `lost`: what retention had taken, found out when it was to be granted, or when nothing else was there.
    `has_more` (asked for by `has_other_waiters`): somebody else could be given something too.
    `is_span_full`: there are new messages, but too many before them are unsettled (MAX_SPAN).
    `strangers`: queues among the heads that the state does not know. Then nothing is granted: open them, and ask again.
    `next_at`: when something may become ready by time alone (a lease ends, a delay is over, tokens come).
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

    @property
    def expired(self) -> int:
        """How many messages retention had taken."""
        return sum(span.next - span.start for span in self.lost)


UNKNOWN = AcquireResult(state_exists=False)


class Position(NamedTuple):
    """Where a group, or one client of it, stands in a queue."""

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
    """What a seek did, or would do, to one queue.

    `done_before`, `done_behind` (message mode): how many messages were settled out of turn, from the old place to the
    new one, and behind both.
    """

    queue: str
    old: int
    new: int
    done_before: int = 0
    done_behind: int = 0

    @property
    def skipped(self) -> int:
        """How many messages are passed over that nobody has settled."""
        return max(self.new - self.old, 0) - self.done_before

    @property
    def repeated(self) -> int:
        """How many come again that were settled."""
        return max(self.old - self.new, 0) + self.done_behind


class ClientInfo(NamedTuple):
    """One process of a group, as operators see it."""

    name: str
    address: str
    first_seen: datetime
    last_seen: datetime
    holds: Sequence[str]


class QueueLeaseState(NamedTuple):
    """What a store knows of the queue that a settlement names."""

    incarnation: str
    epoch: int
    revoked_epoch: int
    min: int
    committed: int
    leased_until: datetime


def decide_outcome(
    verb: Verb, lease: Lease, queue: QueueLeaseState | None, spent_by: Verb | None, now: datetime
) -> SettlementOutcome:
    """Decide a settlement; pure, so that every store and the reference model agree on it."""
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
    """What an attempt asks for, in its own words: what it leaves to the group (None) may change meanwhile."""
    return f"{max_count}:{'' if visibility is None else visibility // timedelta(milliseconds=1)}"


def mark_serve_returned(returned: int, serve: int) -> int:
    """The serves of a lease that nobody took, a bit each, with one more."""
    return returned | 1 << serve - 1 if serve <= _MOST_SERVES else returned


def all_serves_returned(returned: int, serves: int) -> bool:
    """Whether nobody took any of a lease's serves: which of two answers came first is not known to a store.

    One that was served too often ends by itself.
    """
    return serves <= _MOST_SERVES and returned == (1 << serves) - 1


def batch_size(max_count: int, attempt: int, max_attempts: int) -> int:
    """The second half of the attempts deliver singly, so that only the culprit dies."""
    return 1 if attempt > max_attempts // 2 else max_count
