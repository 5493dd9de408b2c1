"""Receive once, without waiting: one step of the lease store (acks, choice, leases), then the pulls.

no state of the group or client -> create it at its start, report `registered` (broadcast), try again
unknown queue                   -> add it, and try again
exhausted message               -> write its dead letter first
grants                          -> pull; release what is missing or filtered out; if nothing is left, try again
unreadable queue                -> release its lease uncounted, and treat it as closed for the rest of this call
no grant                        -> an empty result with the reason
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog

from mqgate.consumption.dead_letters import DeadLetterWriter
from mqgate.consumption.group_log import GroupLog
from mqgate.consumption.lease_state import LeaseStateInitializer
from mqgate.consumption.offset_mirror import OffsetMirrorService
from mqgate.consumption.pending_notices import Notices
from mqgate.consumption.pull import DeliveredBatch, PulledBatches, pull_messages, pull_queue
from mqgate.core.entries import Group, Mode
from mqgate.core.events import Kind
from mqgate.core.lease import (
    AcquireRequest,
    AcquireResult,
    ExhaustedMessage,
    Grant,
    Lease,
    PullReport,
    ReceiveState,
    Settlement,
    SettlementResult,
)
from mqgate.core.message import Message
from mqgate.events.recorder import EventRecorder
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.message_log import TopicBounds
from mqgate.telemetry.metrics import Metrics

_log = structlog.get_logger()
_MAX_SCOPES = 10_000
# Seconds between two reports of new messages, while the store can grant what is asked for without them.
_REPORT_INTERVAL = 0.1
_NONE: frozenset[str] = frozenset()
# Seconds that a receive waits for other receives that read keys of the same ordered group.
_MAX_KEY_READ_WAIT = 0.3
# Maximum number of messages that are read at once to find those that match a filter.
_MAX_WIDENED = 512


class ReceiveRequest(NamedTuple):
    """A receive of a client.

    `scope`: its lease scope. `fingerprint`: the fingerprint of its attempt, see AcquireRequest.
    `key`: the id of its API key; empty without one.
    """

    group: Group
    client: str
    scope: tuple[str, str]
    max_count: int
    visibility: timedelta
    max_bytes: int
    attempt: str | None = None
    settlements: Sequence[Settlement] = ()
    address: str = ""
    fingerprint: str = ""
    key: str = ""

    @property
    def place(self) -> tuple[Group, str]:
        """Return the group and client that identify the lease state."""
        return self.group, self.scope[1]


@dataclass(slots=True)
class ReceiveResult:
    """The result of a receive.

    `settled`: the results of the carried acks. `leases`: the leases that the carried receipts prove; only the first
    one if they are all those of one response of message mode.
    `receipt`: that of the whole batch (queue and broadcast mode). `receipts`: those of the messages of each batch
    (message mode). `has_unread`: a queue was unreadable although the log had not reported it, so try again.
    """

    batches: Sequence[DeliveredBatch] = ()
    grants: Sequence[Grant] = ()
    settled: Sequence[SettlementResult] = ()
    state: ReceiveState = ReceiveState.OK
    is_registered: bool = False
    expired: int = 0
    rewound: int = 0
    has_more: bool = False
    is_span_full: bool = False
    has_unread: bool = False
    next_at: datetime | None = None
    leases: Sequence[Lease | None] = ()
    receipt: str = ""
    receipts: Sequence[Sequence[str]] = ()

    @property
    def messages(self) -> Sequence[Message]:
        """Return the messages of all batches."""
        if len(self.batches) == 1:
            return self.batches[0].messages
        return [message for batch in self.batches for message in batch.messages]

    @property
    def grant(self) -> Grant | None:
        """Return the lease of the batch (queue and broadcast mode)."""
        return self.batches[0].grant if self.batches else None

    @property
    def notices(self) -> Notices:
        return Notices(self.is_registered, self.expired, self.rewound)

    def carry(self, before: "ReceiveResult") -> None:
        """Include what an earlier try of the same request found."""
        self.settled = [*before.settled, *self.settled]
        self.is_registered |= before.is_registered
        self.expired += before.expired
        self.rewound += before.rewound

    def add_notices(self, pending: Notices) -> None:
        """Include pending notices. A newly registered client has none."""
        if not self.is_registered:
            self.is_registered = pending.is_registered
            self.expired += pending.expired
            self.rewound += pending.rewound


class _ReportedBounds:
    """What the store knows of the bounds of one scope.

    `version`: the version that was last reported. `latest`: the highest version that a receive has read. `due_at`: when
    new messages are reported next, even if the store can grant what is asked for without them.
    `withheld`: the queues that were closed then. If the store does not know one, it is reported when it opens.
    """

    __slots__ = ("due_at", "latest", "version", "withheld")

    def __init__(self) -> None:
        self.version = self.latest = 0
        self.due_at = 0.0
        self.withheld: frozenset[str] = _NONE

    def is_due(self) -> bool:
        """Return whether new messages must be reported now. Of concurrent receives, only the first one reports them."""
        now = time.monotonic()
        if now < self.due_at:
            return False
        self.due_at = now + _REPORT_INTERVAL
        return True

    def update(self, bounds: TopicBounds) -> None:
        self.version = max(self.version, bounds.version)
        if bounds.closed or self.withheld:
            self.withheld = (self.withheld | bounds.queues.keys()) & bounds.closed


class _KeyReads:
    """Current pulls of an ordered group, a count of their starts and ends, and a lock for receives that wait."""

    def __init__(self) -> None:
        self.pulls: set[asyncio.Future[None]] = set()
        self.count = 0
        self.turn = asyncio.Lock()

    def since(self, count: int) -> bool:
        """Return whether a receive reads keys now, or did after the count had this value."""
        return bool(self.pulls) or self.count != count


class Receiver:
    def __init__(
        self,
        log: GroupLog,
        leases: LeaseStore,
        dead_letters: DeadLetterWriter,
        metrics: Metrics,
        mirror: OffsetMirrorService,
        opener: LeaseStateInitializer,
        recorder: EventRecorder,
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._mirror = mirror
        self._opener = opener
        self._leases = leases
        self._dead_letters = dead_letters
        self._metrics = metrics
        # A lost entry only repeats the report of all bounds.
        self._reported: OrderedDict[tuple[str, str], _ReportedBounds] = OrderedDict()
        self._dead_letter_writes: dict[Lease, asyncio.Future[bool]] = {}
        # Pulls of ordered groups, which read keys that the store does not know yet.
        self._key_reads: dict[tuple[str, str], _KeyReads] = {}

    def receive(
        self, request: ReceiveRequest, *, has_other_waiters: bool = False, wait: timedelta = timedelta(0)
    ) -> Coroutine[Any, Any, ReceiveResult]:
        """Try all queues once.

        `has_other_waiters`: other receives are parked, so report whether more is ready. `wait`: how long the caller
        will wait if there is nothing.
        """
        attempt = self._try_in_order if request.group.is_ordered else self._try
        return attempt(request, has_other_waiters, wait)

    async def _try_in_order(self, request: ReceiveRequest, has_other_waiters: bool, wait: timedelta) -> ReceiveResult:
        """Try all queues of an ordered group, and again while other receives read keys of it."""
        reads = self._key_reads.setdefault(request.scope, _KeyReads())
        received = ReceiveResult()
        if not reads.turn.locked():
            seen = reads.count
            received = await self._try(request, has_other_waiters, wait)
            if received.batches or received.state is not ReceiveState.BUSY or not reads.since(seen):
                return received
            request = request._replace(settlements=())
        # Repeat while other receives read keys: their queue is busy then, but not empty.
        deadline = time.monotonic() + _MAX_KEY_READ_WAIT
        async with reads.turn:
            while True:
                if reads.pulls:
                    await asyncio.wait(reads.pulls, timeout=_MAX_KEY_READ_WAIT, return_when=asyncio.FIRST_COMPLETED)
                seen, is_last = reads.count, time.monotonic() > deadline
                before, received = received, await self._try(request, has_other_waiters, wait)
                received.carry(before)
                if is_last or received.batches or received.state is not ReceiveState.BUSY or not reads.since(seen):
                    return received
                request = request._replace(settlements=())

    async def _try(self, request: ReceiveRequest, has_other_waiters: bool, wait: timedelta) -> ReceiveResult:
        received = ReceiveResult()
        self._mirror.mark_dirty(request.group.name)
        settlements = request.settlements
        unread = empty = _NONE
        asked = request
        reported = self._reported_of(request.scope)
        while True:
            bounds = await self._bounds(request.group, reported)
            is_optional = bounds.is_growth and not reported.is_due()
            step = _step(asked, bounds, is_optional, unread, settlements, has_other_waiters, wait)
            acquired = await self._leases.acquire(step)
            if not acquired.state_exists:
                received.is_registered |= await self._opener.open(*request.place)
                reported.version = 0
                continue
            if acquired.are_bounds_applied and not acquired.unknown_queues:
                reported.update(bounds)
            if settlements:
                self._recorder.settled(request.group, request.client, settlements, acquired.settled)
            self._recorder.granted(request.group, request.scope[1], acquired)
            settlements = ()
            self._include(request.group, received, acquired)
            if acquired.grants:
                found = await self._pull(request, acquired.grants)
                self._recorder.spans(Kind.FILTERED, request.group, "", found.filtered)
                received.batches, received.grants = found.batches, found.grants
                asked = _wider(asked, found)
                received.has_more |= found.is_short
                if found.unread or found.empty:
                    # Nothing was stored although the bounds promised it: try once more, but not again.
                    unread |= found.unread | (empty & found.empty)
                    empty |= found.empty
            if acquired.exhausted:
                unread |= await self._write_dead_letters(request.group, received, acquired.exhausted)
            received.has_unread = bool(unread)
            if acquired.unknown_queues:
                unread |= await self._opener.add_queues(*request.place, acquired.unknown_queues)
                continue
            # Ready messages may follow those that were dead-lettered or expired.
            if received.batches or not (acquired.grants or acquired.exhausted or acquired.lost):
                return received

    def _reported_of(self, scope: tuple[str, str]) -> _ReportedBounds:
        reported = self._reported.get(scope)
        if reported is None:
            reported = self._reported[scope] = _ReportedBounds()
            if len(self._reported) > _MAX_SCOPES:
                self._reported.popitem(last=False)
        else:
            self._reported.move_to_end(scope)
        return reported

    async def _bounds(self, group: Group, reported: _ReportedBounds) -> TopicBounds:
        """Return the bounds to report, never older than those of another receive: falling bounds mean a loss."""
        while True:
            bounds = await self._log.bounds(group, reported.version)
            if reported.withheld and reported.withheld - bounds.closed:
                bounds = await self._log.bounds(group)
            if bounds.version >= reported.latest:
                reported.latest = bounds.version
                return bounds

    async def release(self, group: Group, received: ReceiveResult) -> None:
        """Release the leases of a result that cannot be delivered. The deliveries do not count."""
        placements = [PullReport(grant, grant.lease.start) for grant in received.grants]
        if placements:
            await self._leases.report_pull(group, placements)

    async def _write_dead_letters(
        self, group: Group, received: ReceiveResult, exhausted: Sequence[ExhaustedMessage]
    ) -> frozenset[str]:
        """Write dead letters concurrently, each message once; return the queues that could not be read.

        They are written at once because the leases that were granted in the same step are running.
        """
        try:
            are_written = await asyncio.gather(*(self._write_dead_letter(group, each) for each in exhausted))
        except BaseException:
            await self.release(group, received)
            raise
        return frozenset(
            each.lease.queue for each, is_written in zip(exhausted, are_written, strict=True) if not is_written
        )

    async def _write_dead_letter(self, group: Group, exhausted: ExhaustedMessage) -> bool:
        writing = self._dead_letter_writes.get(exhausted.lease)
        if writing is None:
            writing = asyncio.ensure_future(self._dead_letters.write(group, exhausted))
            self._dead_letter_writes[exhausted.lease] = writing
            writing.add_done_callback(lambda _: self._dead_letter_writes.pop(exhausted.lease))
        return await asyncio.shield(writing)

    def _pull(self, request: ReceiveRequest, grants: Sequence[Grant]) -> Coroutine[Any, Any, PulledBatches]:
        group = request.group
        if group.mode is Mode.MESSAGE:
            pulling = pull_messages(self._log, self._leases, group, grants, request.max_count, request.max_bytes)
            return self._track_key_reads(request.scope, pulling) if group.is_ordered else pulling
        return pull_queue(self._log, self._leases, group, grants[0], request.max_bytes)

    async def _track_key_reads(
        self, scope: tuple[str, str], pulling: Coroutine[Any, Any, PulledBatches]
    ) -> PulledBatches:
        reads = self._key_reads[scope]
        is_over = asyncio.get_running_loop().create_future()
        reads.pulls.add(is_over)
        reads.count += 1
        try:
            return await pulling
        finally:
            reads.pulls.discard(is_over)
            reads.count += 1
            is_over.set_result(None)

    def _include(self, group: Group, received: ReceiveResult, acquired: AcquireResult) -> None:
        self._mirror.mark_dirty(group.name)
        received.settled = [*received.settled, *acquired.settled]
        received.state = acquired.state
        received.rewound += acquired.rewound
        received.has_more = acquired.has_more
        received.is_span_full = acquired.is_span_full
        received.next_at = acquired.next_at
        if acquired.lost:
            received.expired += acquired.expired
            self._metrics.expired.labels(group.name).inc(acquired.expired)
            _log.warning("messages expired before delivery", group=group.name, count=acquired.expired)
        if acquired.rewound:
            self._mirror.invalidate(group.name)
            _log.warning("queue truncated", group=group.name, count=acquired.rewound)


def _wider(asked: ReceiveRequest, found: PulledBatches) -> ReceiveRequest:
    """Widen the request if no granted message can be delivered, or each such message would take a step of its own.

    Such messages have other tags, or in an ordered group they follow unsettled messages of their keys.
    """
    if found.batches or not (found.filtered or asked.group.is_ordered):
        return asked
    return asked._replace(max_count=max(asked.max_count, min(4 * asked.max_count, _MAX_WIDENED)))


def _step(
    request: ReceiveRequest,
    bounds: TopicBounds,
    are_bounds_optional: bool,
    unread: frozenset[str],
    settlements: Sequence[Settlement],
    has_other_waiters: bool,
    wait: timedelta,
) -> AcquireRequest:
    group, client, scope, max_count, visibility, _, attempt, _, address, fingerprint, _ = request
    polled_by = client or f"@{address}"
    closed = bounds.closed | unread if unread else bounds.closed
    details = (
        polled_by,
        address,
        attempt,
        settlements,
        has_other_waiters,
        closed,
        bounds.boots,
        wait,
        fingerprint,
        bounds.last_append_ms,
        are_bounds_optional,
    )
    # A tuple is built directly: every receive builds one, and a call by field names is slow.
    return tuple.__new__(AcquireRequest, (group, scope[1], max_count, visibility, bounds.queues, *details))
