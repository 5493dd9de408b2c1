"""Records events on the hot path. The event writer turns them into rows later, in another thread.

A request pays only for appending one record, and no message body is kept. The number of rows that are not written yet
is limited: rows beyond the limit are dropped and counted.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar, cast

from mqgate.core.entries import Group, Mode, Producer
from mqgate.core.errors import MqgateError
from mqgate.core.events import Kind, Poll
from mqgate.core.lease import AcquireResult, ExhaustedMessage, Grant, OffsetRange, Settlement, SettlementResult
from mqgate.core.message import Draft, Message, Stored
from mqgate.core.message_page import MessagePage
from mqgate.events.rows import SEPARATOR, PendingEvents, Run, SinglePublishes, pack, to_milliseconds
from mqgate.telemetry.metrics import Metrics

__all__ = ["EventRecorder", "TakenEvents"]

# Topic, group, client, outcome.
PollKey = tuple[str, str, str, Poll]
LagRow = tuple[object, ...]
_Value = TypeVar("_Value")
_MAX_POLL_KEYS = 10_000
# The writer is woken before its interval ends if this many rows are pending.
_MAX_BATCH_ROWS = 20_000


class TakenEvents(NamedTuple):
    """The events, rows of `lag/1` and poll counts since the last call.

    `reserved` must be passed to `release` when all of them are written.
    """

    events: PendingEvents
    lags: Sequence[LagRow]
    polls: Mapping[PollKey, int]
    reserved: int


class EventRecorder:
    """A buffer of events. It is called from the thread of the event loop only. `clock` returns milliseconds."""

    def __init__(self, metrics: Metrics, clock: Callable[[], int], *, max_rows: int, is_on: bool = True) -> None:
        self._metrics = metrics
        self.now = clock
        self._max_rows = max_rows
        self.is_on = is_on
        self._events = PendingEvents([], [], [], [])
        # Is an element of `published` as soon as it is not empty.
        self._single_publishes: SinglePublishes = []
        self._lags: list[LagRow] = []
        self._polls: dict[PollKey, int] = {}
        # Rows that are not written yet, and how many of them were taken.
        self._rows = self._taken = 0
        self._batch_threshold = self._wake_threshold = min(_MAX_BATCH_ROWS, max_rows // 2)
        self._threshold_reached = asyncio.Event()
        self.dropped = 0

    def published(
        self, topic: str, producer: str, drafts: Sequence[Draft], outcomes: Sequence[Stored | MqgateError]
    ) -> None:
        """Record the stored messages of a publish."""
        if self.is_on and len(outcomes) == 1:
            # The common case.
            stored, draft = outcomes[0], drafts[0]
            if isinstance(stored, Stored) and self._reserve(1):
                singles = self._single_publishes
                if not singles:
                    self._events.published.append(singles)
                queue, offset, at, _ = stored
                singles += (self.now(), topic, producer or None, draft[0], len(draft[1]), queue, offset, at)
        elif self.is_on:
            accepted = outcomes
            if set(map(type, outcomes)) != {Stored}:
                pairs = [pair for pair in zip(drafts, outcomes, strict=True) if isinstance(pair[1], Stored)]
                drafts, accepted = [draft for draft, _ in pairs], [outcome for _, outcome in pairs]
            if accepted and self._reserve(len(accepted)):
                # Stored as a few columns: thousands of small objects that live until they are written slow down later
                # batches, whose objects are then allocated in memory outside the CPU cache.
                queues, offsets, times, _ = zip(*cast("Sequence[Stored]", accepted), strict=True)
                ids, sizes = SEPARATOR.join([draft[0] for draft in drafts]), [len(draft[1]) for draft in drafts]
                columns = (ids, pack(sizes), _collapse(queues), pack(offsets), _collapse(times))
                self._events.published.append((self.now(), topic, producer or None, *columns))

    def scheduled(self, topic: str, producer: str, drafts: Sequence[Draft], due: Sequence[datetime]) -> None:
        """Record scheduled messages."""
        given = {"id": [draft.id for draft in drafts], "bytes": [len(draft.body) for draft in drafts]}
        self._add(
            len(drafts), Kind.SCHEDULED, topic, producer=producer or None, stored_at=to_milliseconds(due), **given
        )

    def cancelled(self, topic: str, message_id: str, due: datetime) -> None:
        """Record a cancelled timer."""
        self._add(1, Kind.CANCELLED, topic, id=message_id, stored_at=to_milliseconds((due,)))

    def delivered(self, group: Group, client: str, batches: Sequence[tuple[Grant, MessagePage]]) -> None:
        """Record delivered messages, except those of grants that were served before."""
        if self.is_on:
            for grant, messages in batches:
                if grant.serve == 1 and self._reserve(len(messages)):
                    self._events.delivered.append((self.now(), group, client, _run(grant, messages)))

    def settled(
        self, group: Group, client: str, settlements: Sequence[Settlement], outcomes: Sequence[SettlementResult]
    ) -> None:
        """Record settlements and their outcomes."""
        if self.is_on and outcomes:
            is_single = group.mode is Mode.MESSAGE
            count = len(outcomes) if is_single else sum([item.lease.next - item.lease.start for item in settlements])
            if self._reserve(count):
                self._events.settled.append((self.now(), group, client, settlements, outcomes))

    def granted(self, group: Group, client: str, acquired: AcquireResult) -> None:
        """Record the expired leases and the messages deleted by retention that a receive found.

        `client` is set for broadcast groups only: otherwise the client whose lease expired is not known.
        """
        for grant in acquired.grants:
            if grant.lease_expired:
                start = grant.lease.start
                expired = OffsetRange(grant.lease.queue, start, start + grant.lease_expired)
                self.spans(Kind.LEASE_EXPIRED, group, client, [expired], grant.delivery - 1 or None)
        if acquired.lost:
            self.spans(Kind.RETENTION_EXPIRED, group, client, acquired.lost)

    def spans(
        self, kind: Kind, group: Group, client: str, ranges: Sequence[OffsetRange], delivery: int | None = None
    ) -> None:
        """Record an event for each range."""
        if ranges:
            queue, offset = [item.queue for item in ranges], [item.start for item in ranges]
            count = [item.next - item.start for item in ranges]
            given = {"group": group.name, "client": client or None, "delivery": delivery}
            self._add(len(ranges), kind, group.topic, queue=queue, offset=offset, count=count, **given)

    def dead(self, group: Group, exhausted: ExhaustedMessage, message: Message | None) -> None:
        """Record a dead letter. Without a message, record that retention deleted it before it could be stored."""
        lease = exhausted.lease
        failed = OffsetRange(lease.queue, lease.start, lease.next)
        if exhausted.is_lease_expired:
            self.spans(Kind.LEASE_EXPIRED, group, lease.client, [failed], exhausted.deliveries)
        if message is None:
            self.spans(Kind.RETENTION_EXPIRED, group, lease.client, [failed])
            return
        self._add(
            1,
            Kind.DEAD,
            group.topic,
            group=group.name,
            client=lease.client or None,
            queue=lease.queue,
            offset=lease.start,
            id=message.id,
            stored_at=message.stored_ms,
            delivery=exhausted.deliveries,
            bytes=len(message.body),
            reason=exhausted.reason,
        )

    def refused(
        self, topic: str, outcome: str, count: int = 1, *, producer: Producer | None = None, group: str | None = None
    ) -> None:
        """Record rejected publishes, or rejected settlements of a group."""
        if count:
            name = None if producer is None else producer.name
            self._add(count, Kind.REFUSED, topic, producer=name, group=group, outcome=outcome)

    def polled(self, group: Group, client: str, outcome: Poll) -> None:
        """Count a receive by its outcome."""
        if not self.is_on:
            return
        key = group.topic, group.name, client, outcome
        count = self._polls.get(key, 0)
        if count or len(self._polls) < _MAX_POLL_KEYS:
            self._polls[key] = count + 1
        else:
            self.drop(1)

    def sampled(self, rows: Sequence[LagRow]) -> None:
        """Record rows of `lag/1`."""
        if self._reserve(len(rows)):
            self._lags += rows

    def take(self) -> TakenEvents:
        """Return all events since the last call."""
        taken = TakenEvents(self._events, self._lags, self._polls, self.untaken)
        self._events, self._lags, self._polls, self._taken = PendingEvents([], [], [], []), [], {}, self._rows
        self._single_publishes = []
        return taken

    @property
    def untaken(self) -> int:
        """Return the number of rows since the last `take`."""
        return self._rows - self._taken

    def release(self, reserved: int) -> None:
        """Free the space of rows that were taken and written."""
        self._rows -= reserved
        self._taken -= reserved

    async def wait(self, seconds: float, *, for_any_row: bool = False) -> None:
        """Wait until a batch is full (or until there is any row), but at most `seconds`."""
        self._threshold_reached.clear()
        self._wake_threshold = 1 if for_any_row else self._batch_threshold
        if self.untaken >= self._wake_threshold:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._threshold_reached.wait()

    def _add(self, number: int, kind: Kind, topic: str, **given: object) -> None:
        if self.is_on and self._reserve(number):
            common = {"at": self.now(), "kind": kind.value, "topic": topic, "count": 1}
            self._events.others.append((number, common | given))

    def _reserve(self, number: int) -> bool:
        if self._rows + number > self._max_rows:
            self.drop(number)
            return False
        self._rows += number
        if self._rows >= self._wake_threshold:
            self._threshold_reached.set()
        return True

    def drop(self, number: int) -> None:
        """Count rows that will not be written."""
        self.dropped += number
        self._metrics.events_dropped.inc(number)


def _collapse(column: tuple[_Value, ...]) -> tuple[_Value, ...]:
    """Return a column of equal values as one value, which stands for all rows."""
    return column[:1] if column.count(column[0]) == len(column) else column


def _run(grant: Grant, page: MessagePage) -> Run:
    return Run(grant.lease.queue, grant.delivery, pack(page.offsets), pack(page.stored_ms), pack(page.sizes))
