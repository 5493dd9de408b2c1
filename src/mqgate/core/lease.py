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

LONGEST_HOLD = timedelta(hours=12)
AGEING = timedelta(seconds=30)
MEMORY = timedelta(minutes=10)
MAX_SPAN = 65_536
LEAST_REMEMBERED = 10_000
# What fits into the whole numbers of every store.
_MOST_SERVES = 50


class Head(NamedTuple):
    """A queue's ends: the first offset it still holds, and the next one it will store at."""

    min: int
    max: int


class Boot(NamedTuple):
    """When a queue's broker was started, by its own clock, and the first offset that was stored after that."""

    at_ms: int
    floor: int


class Verb(StrEnum):
    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"


class Outcome(StrEnum):
    """What became of a settlement; the first three changed something or did so before."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    LATE_APPLIED = "late_applied"
    LOST = "lost"
    GONE = "gone"
    INVALID = "invalid"

    @property
    def is_done(self) -> bool:
        return self.is_new or self is Outcome.DUPLICATE

    @property
    def is_new(self) -> bool:
        """Whether this very settlement changed something."""
        # By identity: an enum's hash is computed in Python, and a batch asks this dozens of times.
        return self is Outcome.APPLIED or self is Outcome.LATE_APPLIED


class State(StrEnum):
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


class Span(NamedTuple):
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
    lapsed: int = 0


class Placement(NamedTuple):
    """What the pull found of a grant: everything before `after`; at the grant's start, nothing at all.

    `kept` (message mode): only these offsets are wanted, the others are filtered out; with their keys, for order.
    """

    grant: Grant
    after: int
    kept: Mapping[int, str | None] | None = None


class Doomed(NamedTuple):
    """A message whose last delivery failed: it must be recorded as dead before its queue goes on.

    `is_lapsed`: by a lease that ended without a settlement.
    """

    lease: Lease
    deliveries: int
    first_at: datetime
    last_at: datetime
    reason: str | None
    is_lapsed: bool = False


class Settlement(NamedTuple):
    """One ack, nack or extend of a lease; the receipt that proved it is for the record only."""

    verb: Verb
    lease: Lease
    through: int | None = None
    delay: timedelta | None = None
    reason: str | None = None
    visibility: timedelta | None = None
    receipt: str = ""


class Settled(NamedTuple):
    """What became of a settlement; `error` says why, where the outcome alone does not."""

    outcome: Outcome
    doomed: Doomed | None = None
    leased_until: datetime | None = None
    error: MqgateError | None = None


class Acquire(NamedTuple):
    """One receive, as the lease store sees it; a tuple, as its answer: frozen dataclasses are slow to make.

    `heads` holds the queues whose ends changed since the last call; the store remembers the others.
    `closed`: queues that cannot be read now. Nothing of them is granted or doomed, and they are no reason to try
    again soon; what they hold stays as it is, and their leases are settled as always.
    `boots`: of a broker that was started anew the last messages may be lost, and others stored at their offsets. Where
    it matters (leases that outlive a broker) its queues go back to the first message stored after the start.
    `wait`: if nothing is granted somebody waits for so long, and wants to hear of what is done on other gateways.
    `shape`: what the attempt asks for (shape_of); the same attempt must ask for the same.
    `rose`: when the newest messages of these queues were stored. A queue that had no backlog before has waited to be
    served since then, though nobody asked; those that are not among them wait from now on.
    """

    group: Group
    client: str
    most: int
    visibility: timedelta
    heads: Mapping[str, Head]
    polled_by: str = ""
    address: str = ""
    attempt: str | None = None
    settlements: Sequence[Settlement] = ()
    is_crowded: bool = False
    closed: frozenset[str] = frozenset()
    boots: Mapping[str, Boot] = MappingProxyType({})
    wait: timedelta = timedelta(0)
    shape: str = ""
    rose: Mapping[str, int] = MappingProxyType({})


class Acquired(NamedTuple):
    """What a receive was given. `is_known` false: no state for this group or client, open it first.

    `lost`: what retention had taken, found out when it was to be granted, or when nothing else was there.
    `has_more` (asked for by `is_crowded`): somebody else could be given something too.
    `needs_settling`: there are new messages, but too many before them are unsettled (MAX_SPAN).
    `strangers`: queues among the heads that the state does not know. Then nothing is granted: open them, and ask again.
    `next_at`: when something may become ready by time alone (a lease ends, a delay is over, tokens come).
    """

    is_known: bool
    settled: Sequence[Settled] = ()
    grants: Sequence[Grant] = ()
    state: State = State.OK
    lost: Sequence[Span] = ()
    rewound: int = 0
    doomed: Sequence[Doomed] = ()
    next_at: datetime | None = None
    has_more: bool = False
    needs_settling: bool = False
    strangers: Sequence[str] = ()

    @property
    def expired(self) -> int:
        """How many messages retention had taken."""
        return sum(span.next - span.start for span in self.lost)


UNKNOWN = Acquired(is_known=False)


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


class Moved(NamedTuple):
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


class Client(NamedTuple):
    """One process of a group, as operators see it."""

    name: str
    address: str
    first_seen: datetime
    last_seen: datetime
    holds: Sequence[str]


class Standing(NamedTuple):
    """What a store knows of the queue that a settlement names."""

    incarnation: str
    epoch: int
    swept_epoch: int
    min: int
    committed: int
    leased_until: datetime


def judge(verb: Verb, lease: Lease, queue: Standing | None, spent_by: Verb | None, now: datetime) -> Outcome:
    """Decide a settlement; pure, so that every store and the reference model agree on it."""
    if queue is None or queue.incarnation != lease.incarnation:
        return Outcome.GONE
    if spent_by is not None:
        return Outcome.DUPLICATE if spent_by is verb else Outcome.LOST
    if lease.epoch <= queue.swept_epoch:
        return Outcome.GONE
    if lease.epoch != queue.epoch:
        return Outcome.GONE if lease.start < queue.min else Outcome.LOST
    if lease.start != queue.committed:
        return Outcome.GONE
    return Outcome.APPLIED if now < queue.leased_until else Outcome.LATE_APPLIED


def shape_of(most: int, visibility: timedelta | None) -> str:
    """What an attempt asks for, in its own words: what it leaves to the group (None) may change meanwhile."""
    return f"{most}:{'' if visibility is None else visibility // timedelta(milliseconds=1)}"


def returning(returned: int, serve: int) -> int:
    """The serves of a lease that nobody took, a bit each, with one more."""
    return returned | 1 << serve - 1 if serve <= _MOST_SERVES else returned


def is_nobodys(returned: int, serves: int) -> bool:
    """Whether nobody took any of a lease's serves: which of two answers came first is not known to a store.

    One that was served too often ends by itself.
    """
    return serves <= _MOST_SERVES and returned == (1 << serves) - 1


def batch_size(most: int, attempt: int, max_attempts: int) -> int:
    """The second half of the attempts deliver singly, so that only the culprit dies."""
    return 1 if attempt > max_attempts // 2 else most
