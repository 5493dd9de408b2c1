"""Waiting without state in any store: parked requests, woken by events (pop with notify).

Each scope (a group, or a broadcast client) has its parked requests in order of arrival. An event wakes the oldest
ones, as many as it can serve; a woken request tries again and, if another was quicker, keeps its place and its
remaining time. No wake-up is lost:
- a request is enrolled before it tries, so an event in between is seen;
- one that leaves with a wake-up it did not use, sees that more is ready, or gives back what it got, wakes the next;
- what becomes ready by time alone (`next_at`) has one timer per scope; who leaves with messages sets it for the others;
- a queue that could not be read, unannounced, is tried again after a while; one that the log calls closed is an arrival
  when it opens;
- before it answers empty, a request tries once more.
What a request found out besides (expired, registered anew, rewound) and could tell nobody, because its client hung up,
is told by the next answer of its scope at this gateway.
The log tells only "so many arrived on this topic"; other gateways may race for them.
"""

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta

from mqgate.consumption.connection import ClientDisconnected, Connection
from mqgate.consumption.pending_notices import PendingNotices
from mqgate.consumption.receive import Receiver, ReceiveRequest, ReceiveResult
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import GroupNotFound, Overloaded, TooManyParked
from mqgate.core.events import Poll
from mqgate.core.lease import ReceiveState, Verb
from mqgate.ports.directory import Directory
from mqgate.ports.message_log import MessageLog
from mqgate.telemetry.metrics import Metrics
from mqgate.telemetry.recorder import EventRecorder

Scope = tuple[str, str]
_LEAST_WAIT = timedelta(seconds=1)
_SOONEST_TIMER = 0.005
_UNREAD_PAUSE = timedelta(seconds=1)
# uvloop counts in whole milliseconds, and may be early by one: who is woken too early asks in vain, and once more.
_EARLY = 0.002


class ParkedReceive:
    """One request that tries or waits. It remembers a wake-up until its next try."""

    __slots__ = ("_is_disconnected", "_waiter", "is_woken", "woken_at")

    def __init__(self) -> None:
        # Most requests never wait: what waiting needs is made when it begins.
        self._waiter: asyncio.Future[None] | None = None
        self.is_woken = False
        self._is_disconnected = False
        self.woken_at = 0.0

    def has_disconnected(self) -> bool:
        return self._is_disconnected

    def disconnect(self) -> None:
        self._is_disconnected = True
        self.wake()

    def wake(self) -> None:
        self.is_woken = True
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait for a wake-up for a while; a bare timer is cheaper than wait_for's task when ten thousand wait."""
        if self.is_woken:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds + _EARLY, self._stop_waiting)
        try:
            await self._waiter
        finally:
            timer.cancel()


class WaitQueue:
    """The parked requests of one scope, the oldest first."""

    __slots__ = ("is_exclusive", "is_queue_mode", "needs_acks", "parked", "timer", "timer_at")

    def __init__(self, request: ReceiveRequest) -> None:
        self.parked: OrderedDict[ParkedReceive, None] = OrderedDict()
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0
        self.is_queue_mode = request.group.mode is not Mode.MESSAGE
        # Here an ack can make something ready: a queue, or the next message of a key.
        self.is_exclusive = self.is_queue_mode or request.group.is_ordered
        self.needs_acks = False


class LongPoll:
    def __init__(
        self,
        receiver: Receiver,
        log: MessageLog,
        directory: Directory,
        metrics: Metrics,
        recorder: EventRecorder,
        notices: PendingNotices,
        *,
        clock: Callable[[], datetime],
        most_parked: int,
        most_parked_per_key: int | None = None,
        is_waking: bool = True,
    ) -> None:
        self._receiver = receiver
        self._log = log
        self._directory = directory
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._most_parked = most_parked
        self._most_parked_per_key = most_parked if most_parked_per_key is None else most_parked_per_key
        self._parked_by_key: Counter[str] = Counter()
        self._is_waking = is_waking
        self._lines: dict[Scope, WaitQueue] = {}
        self._by_topic: dict[str, dict[Scope, WaitQueue]] = {}
        self._watches: dict[str, Callable[[], None]] = {}
        self._notices = notices
        self._parked = 0
        self._is_stopping = False

    async def receive(self, request: ReceiveRequest, wait: timedelta, connection: Connection) -> ReceiveResult:
        """Receive, and wait until a message is ready; raise ClientDisconnected if the client disconnects meanwhile."""
        if not wait:
            has_other_waiters = self._is_crowded(request, 0)
            received = await self._receiver.receive(request, has_other_waiters=has_other_waiters)
            self._recorder.polled(request.group, request.client, Poll.HIT if received.batches else Poll.EMPTY)
            self._acked(request, received, has_other_waiters=has_other_waiters)
            self._pass_on(request.scope, received)
            return received
        wait = max(wait, _LEAST_WAIT)
        deadline = time.monotonic() + wait.total_seconds()
        parked = ParkedReceive()
        line = self._enrol(request, parked)
        try:
            has_other_waiters = self._is_crowded(request, 1)
            received = await self._receiver.receive(request, has_other_waiters=has_other_waiters, wait=wait)
            self._acked(request, received, has_other_waiters=has_other_waiters)
            if received.batches:
                self._metrics.long_polls.labels("short_poll_hit").inc()
                self._recorder.polled(request.group, request.client, Poll.HIT)
                self._pass_on(request.scope, received)
                return received
            return await self._wait(request, line, parked, received, deadline, connection)
        finally:
            self._leave(request, line, parked)

    async def _wait(
        self,
        request: ReceiveRequest,
        line: WaitQueue,
        parked: ParkedReceive,
        received: ReceiveResult,
        deadline: float,
        connection: Connection,
    ) -> ReceiveResult:
        """Park until woken, gone or out of time; what earlier tries found out is told with whatever comes."""
        watcher = asyncio.ensure_future(connection.wait_disconnect())
        watcher.add_done_callback(lambda _: parked.disconnect())
        later = request._replace(settlements=())
        self._count_parked(request, 1)
        try:
            while True:
                self._expect(line, received)
                left = min(deadline - time.monotonic(), _contact(request.group))
                if left > 0 and not self._is_stopping:
                    await parked.wait(left)
                if parked.has_disconnected():
                    self._notices.add(request.scope, received.notices)
                    raise ClientDisconnected
                is_over = time.monotonic() >= deadline
                is_woken, woken_at = parked.is_woken, parked.woken_at
                parked.is_woken = False
                later = later._replace(group=self._current(later.group))
                # Never without: what is freed elsewhere between this look and the last one must be heard.
                wait = timedelta(seconds=max(deadline - time.monotonic(), _SOONEST_TIMER))
                before = received
                received = await self._receiver.receive(later, has_other_waiters=self._is_crowded(later, 1), wait=wait)
                received.carry(before)
                if received.batches:
                    if parked.has_disconnected():
                        await self.release(request, received)
                        raise ClientDisconnected
                    self._metrics.long_polls.labels("woken").inc()
                    self._recorder.polled(request.group, request.client, Poll.WOKEN)
                    if woken_at:
                        self._metrics.wake_up.observe(time.monotonic() - woken_at)
                    self._pass_on(request.scope, received)
                    return received
                if is_over or self._is_stopping:
                    self._metrics.long_polls.labels("timed_out").inc()
                    self._recorder.polled(request.group, request.client, Poll.TIMED_OUT)
                    return received
                self._metrics.empty_wake_ups.inc(int(is_woken))
        finally:
            self._count_parked(request, -1)
            watcher.cancel()

    def _count_parked(self, request: ReceiveRequest, change: int) -> None:
        self._parked += change
        self._metrics.parked.set(self._parked)
        if request.key:
            self._parked_by_key[request.key] += change
            if not self._parked_by_key[request.key]:
                del self._parked_by_key[request.key]

    @property
    def parked(self) -> int:
        """How many requests wait now."""
        return self._parked

    async def release(self, request: ReceiveRequest, received: ReceiveResult) -> None:
        """Release leases that cannot be delivered, keep the notices, and wake the next parked receive."""
        self._notices.add(request.scope, received.notices)
        await self._receiver.release(request.group, received)
        line = self._lines.get(request.scope)
        if line is not None and received.grants:
            self._wake(line, 1)

    def settled(self, scope: Scope, verb: Verb) -> None:
        """Something was settled: a queue is free, a place below the cap, the next of a key, or soon a redelivery."""
        line = self._lines.get(scope)
        if line is not None and (line.needs_acks or verb is not Verb.ACK):
            self._wake(line, 1)

    def changed(self, group: str) -> None:
        """A group was resumed, moved, changed or deleted: whoever waits for it tries again."""
        if group not in self._directory.snapshot.groups:
            self._notices.forget(group)
        for (name, _), line in list(self._lines.items()):
            if name == group:
                self._wake(line, len(line.parked))

    def woken(self, group: str, client: str, at: datetime | None) -> None:
        """Another gateway freed, moved or gave back something; from `at` on it is ready."""
        line = self._lines.get((group, client))
        if line is None:
            return
        if at is None or at <= self._clock():
            self._wake(line, 1)
        else:
            self._set_timer(line, at)

    def missed(self) -> None:
        """Wake-ups of other gateways may have been lost: everybody who waits tries again."""
        for line in list(self._lines.values()):
            self._wake(line, 1)

    def stop(self) -> None:
        """Answer everybody who waits, now."""
        self._is_stopping = True
        for line in list(self._lines.values()):
            self._wake(line, len(line.parked))

    def _current(self, group: Group) -> Group:
        """A parked request goes by the group as it is now: paused, resumed or changed meanwhile."""
        found = self._directory.snapshot.groups.get(group.name)
        if found is None:
            raise GroupNotFound(f"group {group.name} was deleted", group=group.name)
        return found

    def _is_crowded(self, request: ReceiveRequest, own: int) -> bool:
        """Whether others wait too; in an ordered group somebody may begin to while keys are being looked at."""
        line = self._lines.get(request.scope)
        return request.group.is_ordered or (line is not None and len(line.parked) > own)

    def _acked(self, request: ReceiveRequest, received: ReceiveResult, *, has_other_waiters: bool) -> None:
        """A receive settled what it carried; those who wait hear of it, unless it was told whether more is ready.

        In queue mode it mostly takes the very queue that it freed: to wake somebody for that would be in vain.
        """
        is_told = has_other_waiters and bool(received.batches)
        # A broadcast client may carry what is another's.
        if request.group.mode is not Mode.BROADCAST:
            line = self._lines.get(request.scope)
            if is_told or line is None or not line.needs_acks:
                return
        for each, settled in zip(request.settlements, received.settled, strict=True):
            scope = each.lease.group, each.lease.client
            if settled.outcome.is_done and not (is_told and scope == request.scope):
                self.settled(scope, each.verb)

    def _pass_on(self, scope: Scope, received: ReceiveResult) -> None:
        """Who leaves with messages tells those who wait what is left for them."""
        line = self._lines.get(scope)
        if line is None or not received.batches:
            return
        if received.has_more:
            self._wake(line, 1)
        else:
            self._set_timer(line, self._next_try(received))

    def _next_try(self, received: ReceiveResult) -> datetime | None:
        """When it is worth trying again, without any other news."""
        if not received.has_unread:
            return received.next_at
        soon = self._clock() + _UNREAD_PAUSE
        return soon if received.next_at is None else min(soon, received.next_at)

    def _enrol(self, request: ReceiveRequest, parked: ParkedReceive) -> WaitQueue:
        if self._parked >= self._most_parked:
            raise Overloaded(f"{self._most_parked} requests are waiting already: poll without wait", retry_after=1)
        limit = self._most_parked_per_key
        if request.key and self._parked_by_key.get(request.key, 0) >= limit:
            raise TooManyParked(f"At most {limit} receives of one key can be parked. Poll without wait.", retry_after=1)
        line = self._lines.get(request.scope)
        if line is None:
            line = self._lines[request.scope] = WaitQueue(request)
            topic = request.group.topic
            lines = self._by_topic.setdefault(topic, {})
            if not lines and self._is_waking:
                self._watches[topic] = self._log.watch(topic, lambda _, count: self._arrived(topic, count))
            lines[request.scope] = line
        line.parked[parked] = None
        return line

    def _leave(self, request: ReceiveRequest, line: WaitQueue, parked: ParkedReceive) -> None:
        del line.parked[parked]
        if parked.is_woken:
            self._wake(line, 1)
        if line.parked:
            return
        if line.timer is not None:
            line.timer.cancel()
        del self._lines[request.scope]
        lines = self._by_topic[request.group.topic]
        del lines[request.scope]
        if not lines:
            del self._by_topic[request.group.topic]
            self._watches.pop(request.group.topic, lambda: None)()

    def _arrived(self, topic: str, count: int) -> None:
        for line in list(self._by_topic.get(topic, {}).values()):
            # A whole queue goes to one consumer, however much arrived on it.
            self._wake(line, 1 if line.is_queue_mode else count)

    @staticmethod
    def _wake(line: WaitQueue, count: int) -> None:
        if count <= 0:
            return
        now = time.monotonic()
        for parked in line.parked:
            if not parked.is_woken:
                parked.woken_at = now
                parked.wake()
                count -= 1
                if not count:
                    return

    def _expect(self, line: WaitQueue, received: ReceiveResult) -> None:
        """Take note of what the line waits for, and set its timer."""
        is_busy = received.state is ReceiveState.BUSY and line.is_exclusive
        line.needs_acks = is_busy or received.is_span_full or received.state is ReceiveState.IN_FLIGHT_CAP
        self._set_timer(line, self._next_try(received))

    def _set_timer(self, line: WaitQueue, next_at: datetime | None) -> None:
        if next_at is None or not self._is_waking:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + max((next_at - self._clock()).total_seconds(), _SOONEST_TIMER) + _EARLY
        if line.timer is None or line.timer.cancelled() or at < line.timer_at or line.timer_at <= loop.time():
            if line.timer is not None:
                line.timer.cancel()
            line.timer_at = at
            line.timer = loop.call_at(at, self._wake, line, 1)


def _contact(group: Group) -> float:
    """For how many seconds at most a client may wait unseen: one that waits is not idle, however short its time."""
    return group.client_ttl.total_seconds() / 2 if group.mode is Mode.BROADCAST else math.inf
