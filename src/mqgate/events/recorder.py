"""Notes what happens, as it happens: one note for each request, of which rows are made later and elsewhere.

A hot path pays for that and nothing else, and no message body is kept. Rows that wait to be written, or are on their
way, are bounded: what comes beyond is dropped and counted.
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
from mqgate.core.message import Draft, Message, Stored, body_of, stored_ms_of
from mqgate.events.rows import BETWEEN, Notes, Run, Singles, instants, packed
from mqgate.telemetry.metrics import Metrics

__all__ = ["EventRecorder", "Taken"]

# Topic, group, client, how it ended.
PollKey = tuple[str, str, str, Poll]
LagRow = tuple[object, ...]
_Value = TypeVar("_Value")
_MOST_POLLERS = 10_000
# So many rows are worth writing, although it is not time yet.
_FULL = 20_000


class Taken(NamedTuple):
    """What happened since the last time, rows of `lag/1`, and how receives ended.

    `reserved` is to be released when all of it is written.
    """

    notes: Notes
    lags: Sequence[LagRow]
    polls: Mapping[PollKey, int]
    reserved: int


class EventRecorder:
    """Called in the loop's thread only. `clock` gives milliseconds."""

    def __init__(self, metrics: Metrics, clock: Callable[[], int], *, most_rows: int, is_on: bool = True) -> None:
        self._metrics = metrics
        self.now = clock
        self._most_rows = most_rows
        self.is_on = is_on
        self._notes = Notes([], [], [], [])
        # Among the notes as soon as there is one.
        self._singles: Singles = []
        self._lags: list[LagRow] = []
        self._polls: dict[PollKey, int] = {}
        # All rows that are not written yet, and those of them that were taken.
        self._rows = self._taken = 0
        self._worth_writing = self._enough = min(_FULL, most_rows // 2)
        self._full = asyncio.Event()
        # Rows that found no place.
        self.dropped = 0

    def published(
        self, topic: str, producer: str, drafts: Sequence[Draft], outcomes: Sequence[Stored | MqgateError]
    ) -> None:
        """Messages were stored, at least some of these."""
        if self.is_on and len(outcomes) == 1:
            # What most publishes are.
            place, draft = outcomes[0], drafts[0]
            if isinstance(place, Stored) and self._has_room(1):
                singles = self._singles
                if not singles:
                    self._notes.published.append(singles)
                queue, offset, at, _ = place
                singles += (self.now(), topic, producer or None, draft[0], len(draft[1]), queue, offset, at)
        elif self.is_on:
            stored = outcomes
            if set(map(type, outcomes)) != {Stored}:
                pairs = [pair for pair in zip(drafts, outcomes, strict=True) if isinstance(pair[1], Stored)]
                drafts, stored = [draft for draft, _ in pairs], [place for _, place in pairs]
            if stored and self._has_room(len(stored)):
                # As columns in few pieces: thousands of small things that stay until they are written are
                # what a batch would pay most for, because those of the next one then lie in cold memory.
                queues, offsets, times, _ = zip(*cast("Sequence[Stored]", stored), strict=True)
                ids, sizes = BETWEEN.join([draft[0] for draft in drafts]), [len(draft[1]) for draft in drafts]
                columns = (ids, packed(sizes), _shared(queues), packed(offsets), _shared(times))
                self._notes.published.append((self.now(), topic, producer or None, *columns))

    def scheduled(self, topic: str, producer: str, drafts: Sequence[Draft], due: Sequence[datetime]) -> None:
        given = {"id": [draft.id for draft in drafts], "bytes": [len(draft.body) for draft in drafts]}
        self._add(len(drafts), Kind.SCHEDULED, topic, producer=producer or None, stored_at=instants(due), **given)

    def cancelled(self, topic: str, message_id: str, due: datetime) -> None:
        self._add(1, Kind.CANCELLED, topic, id=message_id, stored_at=instants((due,)))

    def delivered(self, group: Group, client: str, batches: Sequence[tuple[Grant, Sequence[Message]]]) -> None:
        """Messages were handed out; for the first time, unless their grant was served before."""
        if self.is_on:
            for grant, messages in batches:
                if grant.serve == 1 and self._has_room(len(messages)):
                    self._notes.delivered.append((self.now(), group, client, _run(grant, messages)))

    def settled(
        self, group: Group, client: str, settlements: Sequence[Settlement], outcomes: Sequence[SettlementResult]
    ) -> None:
        if self.is_on and outcomes:
            is_single = group.mode is Mode.MESSAGE
            count = len(outcomes) if is_single else sum([each.lease.next - each.lease.start for each in settlements])
            if self._has_room(count):
                self._notes.settled.append((self.now(), group, client, settlements, outcomes))

    def granted(self, group: Group, client: str, acquired: AcquireResult) -> None:
        """What a receive found out: deliveries before that ended by themselves, messages that retention took.

        `client` is that of a broadcast group only: who let a lease lapse is not known.
        """
        for grant in acquired.grants:
            if grant.lease_expired:
                start = grant.lease.start
                span = OffsetRange(grant.lease.queue, start, start + grant.lease_expired)
                self.spans(Kind.LEASE_EXPIRED, group, client, [span], grant.delivery - 1 or None)
        self.spans(Kind.RETENTION_EXPIRED, group, client, acquired.lost)

    def spans(
        self, kind: Kind, group: Group, client: str, spans: Sequence[OffsetRange], delivery: int | None = None
    ) -> None:
        """Something happened to whole ranges."""
        if spans:
            queue, offset = [span.queue for span in spans], [span.start for span in spans]
            count = [span.next - span.start for span in spans]
            given = {"group": group.name, "client": client or None, "delivery": delivery}
            self._add(len(spans), kind, group.topic, queue=queue, offset=offset, count=count, **given)

    def dead(self, group: Group, exhausted: ExhaustedMessage, message: Message | None) -> None:
        """A message was buried; without one: retention had taken it before anybody could keep it."""
        lease = exhausted.lease
        span = OffsetRange(lease.queue, lease.start, lease.next)
        if exhausted.is_lease_expired:
            self.spans(Kind.LEASE_EXPIRED, group, lease.client, [span], exhausted.deliveries)
        if message is None:
            self.spans(Kind.RETENTION_EXPIRED, group, lease.client, [span])
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
        self, topic: str, why: str, count: int = 1, *, producer: Producer | None = None, group: str | None = None
    ) -> None:
        """So many publishes, or settlements of a group, were answered with an error."""
        if count:
            who = None if producer is None else producer.name
            self._add(count, Kind.REFUSED, topic, producer=who, group=group, outcome=why)

    def polled(self, group: Group, client: str, outcome: Poll) -> None:
        """A receive ended."""
        if not self.is_on:
            return
        key = group.topic, group.name, client, outcome
        known = self._polls.get(key, 0)
        if known or len(self._polls) < _MOST_POLLERS:
            self._polls[key] = known + 1
        else:
            self.drop(1)

    def sampled(self, rows: Sequence[LagRow]) -> None:
        """Rows of `lag/1`."""
        if self._has_room(len(rows)):
            self._lags += rows

    def take(self) -> Taken:
        """What happened since the last time."""
        taken = Taken(self._notes, self._lags, self._polls, self.untaken)
        self._notes, self._lags, self._polls, self._taken = Notes([], [], [], []), [], {}, self._rows
        self._singles = []
        return taken

    @property
    def untaken(self) -> int:
        """How many rows have come since the last time."""
        return self._rows - self._taken

    def release(self, reserved: int) -> None:
        """So many rows that were taken are written."""
        self._rows -= reserved
        self._taken -= reserved

    async def wait(self, seconds: float, *, is_any_worth_it: bool = False) -> None:
        """Until it is worth writing, or so long."""
        self._full.clear()
        self._enough = 1 if is_any_worth_it else self._worth_writing
        if self.untaken >= self._enough:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._full.wait()

    def _add(self, number: int, kind: Kind, topic: str, **given: object) -> None:
        if self.is_on and self._has_room(number):
            same = {"at": self.now(), "kind": kind.value, "topic": topic, "count": 1}
            self._notes.others.append((number, same | given))

    def _has_room(self, number: int) -> bool:
        if self._rows + number > self._most_rows:
            self.drop(number)
            return False
        self._rows += number
        if self._rows >= self._enough:
            self._full.set()
        return True

    def drop(self, number: int) -> None:
        """So many rows will not be written."""
        self.dropped += number
        self._metrics.events_dropped.inc(number)


def _shared(column: tuple[_Value, ...]) -> tuple[_Value, ...]:
    """One value alone stands for as many as there are rows."""
    return column[:1] if column.count(column[0]) == len(column) else column


def _run(grant: Grant, messages: Sequence[Message]) -> Run:
    first, count = messages[0].offset, len(messages)
    is_dense = messages[-1].offset - first + 1 == count
    offsets = range(first, first + count) if is_dense else [each.offset for each in messages]
    stored_ms, sizes = list(map(stored_ms_of, messages)), list(map(len, map(body_of, messages)))
    return Run(grant.lease.queue, grant.delivery, offsets, stored_ms, sizes)
