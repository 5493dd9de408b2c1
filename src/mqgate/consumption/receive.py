"""Receive once, without waiting: one store step (acks, choice, leases), then the pulls.

known group or client?  no -> open its state at its start, say `registered` (broadcast), try again
a queue is not known    -> open it, and try again
a message is doomed     -> bury it first
granted                 -> pull; what was not there or not wanted goes back, and if nothing is left: again
a queue was not readable -> its lease goes back uncounted, and for the rest of this call it counts as closed
nothing granted         -> empty, with the reason
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
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.message_log import TopicBounds
from mqgate.telemetry.metrics import Metrics
from mqgate.telemetry.recorder import EventRecorder

_log = structlog.get_logger()
_SCOPES_REMEMBERED = 10_000
_NONE: frozenset[str] = frozenset()
# For so long an answer waits for others who look at the keys of an ordered group.
_LONGEST_LOOK = 0.3
# So many messages are looked at at once for those that a group wants.
_WIDEST = 512


class ReceiveRequest(NamedTuple):
    """A receive of a client.

    `scope`: its lease scope. `shape`: the fingerprint of its attempt, see AcquireRequest.

    `key`: id of the API key that it was sent with; empty without one.
    """

    group: Group
    client: str
    scope: tuple[str, str]
    most: int
    visibility: timedelta
    most_bytes: int
    attempt: str | None = None
    settlements: Sequence[Settlement] = ()
    address: str = ""
    shape: str = ""
    key: str = ""

    @property
    def place(self) -> tuple[Group, str]:
        """Group and client that the lease store knows it by."""
        return self.group, self.scope[1]


@dataclass(slots=True)
class ReceiveResult:
    """The result of a receive.

    `settled`: the results of the carried acks. `leases`: the leases that the carried receipts prove.
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


class _Looking:
    """Pulls of an ordered group, their begins and ends counted, and the turn of those who found nothing meanwhile."""

    def __init__(self) -> None:
        self.pulls: set[asyncio.Future[None]] = set()
        self.count = 0
        self.turn = asyncio.Lock()

    def since(self, count: int) -> bool:
        """Whether anybody looks at keys, or did since it was so much."""
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
        # Up to which version each scope's heads were told to the store; forgetting one only repeats them.
        self._told: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._latest: OrderedDict[tuple[str, str], int] = OrderedDict()
        # Which of them were closed then: one that the store had not met is told again when it opens.
        self._withheld: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        self._burials: dict[Lease, asyncio.Future[bool]] = {}
        # Of ordered groups: who looks at keys that the store does not know yet.
        self._looking: dict[tuple[str, str], _Looking] = {}

    async def receive(
        self, request: ReceiveRequest, *, has_other_waiters: bool = False, wait: timedelta = timedelta(0)
    ) -> ReceiveResult:
        """Try everywhere, once.

        `has_other_waiters`: other receives are parked, so report whether more is ready. `wait`: how long the caller
        will wait if there is nothing.
        """
        if not request.group.is_ordered:
            return await self._try(request, has_other_waiters, wait)
        looking = self._looking.setdefault(request.scope, _Looking())
        received = ReceiveResult()
        if not looking.turn.locked():
            seen = looking.count
            received = await self._try(request, has_other_waiters, wait)
            if received.batches or received.state is not ReceiveState.BUSY or not looking.since(seen):
                return received
            request = request._replace(settlements=())
        # As often as others look at keys: a queue is closed meanwhile, but not empty because of that.
        deadline = time.monotonic() + _LONGEST_LOOK
        async with looking.turn:
            while True:
                if looking.pulls:
                    await asyncio.wait(looking.pulls, timeout=_LONGEST_LOOK, return_when=asyncio.FIRST_COMPLETED)
                seen, is_last = looking.count, time.monotonic() > deadline
                before, received = received, await self._try(request, has_other_waiters, wait)
                received.carry(before)
                if is_last or received.batches or received.state is not ReceiveState.BUSY or not looking.since(seen):
                    return received
                request = request._replace(settlements=())

    async def _try(self, request: ReceiveRequest, has_other_waiters: bool, wait: timedelta) -> ReceiveResult:
        received = ReceiveResult()
        self._mirror.touched(request.group.name)
        settlements = request.settlements
        unread = empty = _NONE
        asked = request
        while True:
            bounds = await self._heads(request)
            step = _step(asked, bounds, unread, settlements, has_other_waiters=has_other_waiters, wait=wait)
            acquired = await self._leases.acquire(step)
            if not acquired.state_exists:
                received.is_registered |= await self._opener.open(*request.place)
                self._told.pop(request.scope, None)
                continue
            if not acquired.unknown_queues:
                self._remember_told(request.scope, bounds)
            if settlements:
                self._recorder.settled(request.group, request.client, settlements, acquired.settled)
            self._recorder.granted(request.group, request.scope[1], acquired)
            settlements = ()
            self._note(request.group, received, acquired)
            if acquired.grants:
                found = await self._pull(request, acquired.grants)
                self._recorder.spans(Kind.FILTERED, request.group, "", found.filtered)
                received.batches, received.grants = found.batches, found.grants
                asked = _wider(asked, found)
                received.has_more |= found.is_short
                if found.unread or found.empty:
                    # Nothing there although its end said so: worth one more look, and no more.
                    unread |= found.unread | (empty & found.empty)
                    empty |= found.empty
            if acquired.exhausted:
                unread |= await self._bury(request.group, received, acquired.exhausted)
            received.has_unread = bool(unread)
            if acquired.unknown_queues:
                unread |= await self._opener.add_queues(*request.place, acquired.unknown_queues)
                continue
            # What died or expired may have hidden something that is ready.
            if received.batches or not (acquired.grants or acquired.exhausted or acquired.lost):
                return received

    async def _heads(self, request: ReceiveRequest) -> TopicBounds:
        """What the store is told next, never older than what another request is telling: an end that fell is a loss."""
        scope = request.scope
        while True:
            bounds = await self._log.bounds(request.group, self._told.get(scope, 0))
            withheld = self._withheld.get(scope)
            if withheld and withheld - bounds.closed:
                bounds = await self._log.bounds(request.group)
            if bounds.version >= self._latest.get(scope, 0):
                _remember(self._latest, scope, bounds.version)
                return bounds

    def _remember_told(self, scope: tuple[str, str], bounds: TopicBounds) -> None:
        _remember(self._told, scope, bounds.version)
        withheld = self._withheld.pop(scope, None) or frozenset()
        if bounds.closed and (still := (withheld | bounds.queues.keys()) & bounds.closed):
            self._withheld[scope] = still
            if len(self._withheld) > _SCOPES_REMEMBERED:
                # Without a version all of its queues are told again, also those that open meanwhile.
                oldest, _ = self._withheld.popitem(last=False)
                self._told.pop(oldest, None)

    async def release(self, group: Group, received: ReceiveResult) -> None:
        """Nobody is there to take it: the leases end at once, and the deliveries do not count."""
        placements = [PullReport(grant, grant.lease.start) for grant in received.grants]
        if placements:
            await self._leases.place(group, placements)

    async def _bury(
        self, group: Group, received: ReceiveResult, exhausted: Sequence[ExhaustedMessage]
    ) -> frozenset[str]:
        """Let die what must; each message by one of us, and all at once: leases given above run meanwhile.

        Returns the queues that could not be read for it.
        """
        try:
            are_buried = await asyncio.gather(*(self._burial(group, each) for each in exhausted))
        except BaseException:
            await self.release(group, received)
            raise
        return frozenset(
            each.lease.queue for each, is_buried in zip(exhausted, are_buried, strict=True) if not is_buried
        )

    async def _burial(self, group: Group, exhausted: ExhaustedMessage) -> bool:
        under_way = self._burials.get(exhausted.lease)
        if under_way is None:
            under_way = asyncio.ensure_future(self._dead_letters.write(group, exhausted))
            self._burials[exhausted.lease] = under_way
            under_way.add_done_callback(lambda _: self._burials.pop(exhausted.lease))
        return await asyncio.shield(under_way)

    def _pull(self, request: ReceiveRequest, grants: Sequence[Grant]) -> Coroutine[Any, Any, PulledBatches]:
        group = request.group
        if group.mode is Mode.MESSAGE:
            pulling = pull_messages(self._log, self._leases, group, grants, request.most, request.most_bytes)
            return self._looked_at(request.scope, pulling) if group.is_ordered else pulling
        return pull_queue(self._log, self._leases, group, grants[0], request.most_bytes)

    async def _looked_at(self, scope: tuple[str, str], pulling: Coroutine[Any, Any, PulledBatches]) -> PulledBatches:
        looking = self._looking[scope]
        is_over = asyncio.get_running_loop().create_future()
        looking.pulls.add(is_over)
        looking.count += 1
        try:
            return await pulling
        finally:
            looking.pulls.discard(is_over)
            looking.count += 1
            is_over.set_result(None)

    def _note(self, group: Group, received: ReceiveResult, acquired: AcquireResult) -> None:
        self._mirror.touched(group.name)
        received.settled = [*received.settled, *acquired.settled]
        received.state = acquired.state
        received.rewound += acquired.rewound
        received.has_more = acquired.has_more
        received.is_span_full = acquired.is_span_full
        received.next_at = acquired.next_at
        if acquired.lost:
            received.expired += acquired.expired
            self._metrics.expired.labels(group.name).inc(acquired.expired)
            _log.warning("messages expired before they were consumed", group=group.name, count=acquired.expired)
        if acquired.rewound:
            self._mirror.doubt(group.name)
            _log.warning("a queue came back shorter", group=group.name, count=acquired.rewound)


def _wider(asked: ReceiveRequest, found: PulledBatches) -> ReceiveRequest:
    """If nothing of what was granted can be delivered: look at more at once, or each such message takes a step.

    They are of other tags; or, in an ordered group, behind others of their keys.
    """
    if found.batches or not (found.filtered or asked.group.is_ordered):
        return asked
    return asked._replace(most=max(asked.most, min(4 * asked.most, _WIDEST)))


def _remember(versions: OrderedDict[tuple[str, str], int], scope: tuple[str, str], version: int) -> None:
    if version > versions.get(scope, -1):
        versions[scope] = version
    versions.move_to_end(scope)
    if len(versions) > _SCOPES_REMEMBERED:
        versions.popitem(last=False)


def _step(
    request: ReceiveRequest,
    bounds: TopicBounds,
    unread: frozenset[str],
    settlements: Sequence[Settlement],
    *,
    has_other_waiters: bool,
    wait: timedelta,
) -> AcquireRequest:
    group, client, scope, most, visibility, _, attempt, _, address, shape, _ = request
    polled_by = client or f"@{address}"
    closed = bounds.closed | unread if unread else bounds.closed
    told = (
        polled_by,
        address,
        attempt,
        settlements,
        has_other_waiters,
        closed,
        bounds.boots,
        wait,
        shape,
        bounds.last_append_ms,
    )
    # Not by its fields' names: every receive makes one.
    return tuple.__new__(AcquireRequest, (group, scope[1], most, visibility, bounds.queues, *told))
