"""Long poll: receives that are parked in this process until an event wakes them. No store has state of them.

Each lease scope (a group, or a broadcast client) has its parked receives in order of arrival. An event wakes the
oldest ones, as many as it can serve. A woken receive tries again. If another receive was faster, it keeps its position
and its remaining time. No wake-up is lost:
- a receive is enrolled before its first try, so an event during the try is noticed;
- a receive wakes the next one if it ends with an unused wake-up, finds that more is ready, or releases its leases;
- one timer per scope covers messages that become ready by time alone (`next_at`); a receive that ends with messages
  sets it for the others;
- a queue that was unreadable without notice is tried again after a pause; a queue that the log reports as closed counts
  as an arrival when it opens;
- before an empty response, a receive tries once more.
Notices (registered, expired, rewound) of a receive whose client has disconnected are kept for the next response of the
scope on this gateway. The log reports only the number of arrivals on a topic; other gateways may compete for them.
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
from mqgate.events.recorder import EventRecorder
from mqgate.ports.directory import Directory
from mqgate.ports.message_log import MessageLog
from mqgate.telemetry.metrics import Metrics

Scope = tuple[str, str]
_MIN_WAIT = timedelta(seconds=1)
_SOONEST_TIMER = 0.005
_UNREAD_PAUSE = timedelta(seconds=1)
# Timers of uvloop have a resolution of 1 ms and may fire early. A receive that is woken too early tries in vain.
_EARLY = 0.002


class ParkedReceive:
    """One receive that tries or waits. It remembers a wake-up until its next try."""

    __slots__ = ("_is_disconnected", "_waiter", "is_woken", "woken_at")

    def __init__(self) -> None:
        # Created when waiting starts, because most receives never wait.
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
        """Wait for a wake-up. A timer is cheaper than the task of wait_for if ten thousand receives are parked."""
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
    """The parked receives of one lease scope, the oldest first."""

    __slots__ = ("is_exclusive", "is_queue_mode", "needs_acks", "parked", "timer", "timer_at")

    def __init__(self, request: ReceiveRequest) -> None:
        self.parked: OrderedDict[ParkedReceive, None] = OrderedDict()
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0
        self.is_queue_mode = request.group.mode is not Mode.MESSAGE
        # In these modes an ack can make something ready: a queue, or the next message of a key.
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
        max_parked: int,
        max_parked_per_key: int | None = None,
        is_waking: bool = True,
    ) -> None:
        self._receiver = receiver
        self._log = log
        self._directory = directory
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._max_parked = max_parked
        self._max_parked_per_key = max_parked if max_parked_per_key is None else max_parked_per_key
        self._parked_by_key: Counter[str] = Counter()
        self._is_waking = is_waking
        self._wait_queues: dict[Scope, WaitQueue] = {}
        self._by_topic: dict[str, dict[Scope, WaitQueue]] = {}
        self._watches: dict[str, Callable[[], None]] = {}
        self._notices = notices
        self._parked = 0
        self._is_stopping = False

    async def receive(self, request: ReceiveRequest, wait: timedelta, connection: Connection) -> ReceiveResult:
        """Receive, and wait until a message is ready; raise ClientDisconnected if the client disconnects meanwhile."""
        if not wait:
            has_other_waiters = self._has_other_waiters(request, 0)
            received = await self._receiver.receive(request, has_other_waiters=has_other_waiters)
            self._recorder.polled(request.group, request.client, Poll.HIT if received.batches else Poll.EMPTY)
            self._wake_after_acks(request, received, has_other_waiters=has_other_waiters)
            self._wake_next(request.scope, received)
            return received
        wait = max(wait, _MIN_WAIT)
        deadline = time.monotonic() + wait.total_seconds()
        parked = ParkedReceive()
        wait_queue = self._enrol(request, parked)
        try:
            has_other_waiters = self._has_other_waiters(request, 1)
            received = await self._receiver.receive(request, has_other_waiters=has_other_waiters, wait=wait)
            self._wake_after_acks(request, received, has_other_waiters=has_other_waiters)
            if received.batches:
                self._metrics.long_polls.labels("short_poll_hit").inc()
                self._recorder.polled(request.group, request.client, Poll.HIT)
                self._wake_next(request.scope, received)
                return received
            return await self._wait(request, wait_queue, parked, received, deadline, connection)
        finally:
            self._leave(request, wait_queue, parked)

    async def _wait(
        self,
        request: ReceiveRequest,
        wait_queue: WaitQueue,
        parked: ParkedReceive,
        received: ReceiveResult,
        deadline: float,
        connection: Connection,
    ) -> ReceiveResult:
        """Park until a wake-up, a disconnect or the deadline. The result includes what earlier tries found."""
        watcher = asyncio.ensure_future(connection.wait_disconnect())
        watcher.add_done_callback(lambda _: parked.disconnect())
        retry = request._replace(settlements=())
        self._count_parked(request, 1)
        try:
            while True:
                self._expect(wait_queue, received)
                left = min(deadline - time.monotonic(), _max_silence(request.group))
                if left > 0 and not self._is_stopping:
                    await parked.wait(left)
                if parked.has_disconnected():
                    self._notices.add(request.scope, received.notices)
                    raise ClientDisconnected
                is_over = time.monotonic() >= deadline
                is_woken, woken_at = parked.is_woken, parked.woken_at
                parked.is_woken = False
                retry = retry._replace(group=self._current(retry.group))
                # Never zero: other gateways must report what they release between this try and the last one.
                wait = timedelta(seconds=max(deadline - time.monotonic(), _SOONEST_TIMER))
                before = received
                received = await self._receiver.receive(
                    retry, has_other_waiters=self._has_other_waiters(retry, 1), wait=wait
                )
                received.carry(before)
                if received.batches:
                    if parked.has_disconnected():
                        await self.release(request, received)
                        raise ClientDisconnected
                    self._metrics.long_polls.labels("woken").inc()
                    self._recorder.polled(request.group, request.client, Poll.WOKEN)
                    if woken_at:
                        self._metrics.wake_up.observe(time.monotonic() - woken_at)
                    self._wake_next(request.scope, received)
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
        """Return the number of receives that are currently parked."""
        return self._parked

    async def release(self, request: ReceiveRequest, received: ReceiveResult) -> None:
        """Release leases that cannot be delivered, keep the notices, and wake the next parked receive."""
        self._notices.add(request.scope, received.notices)
        await self._receiver.release(request.group, received)
        wait_queue = self._wait_queues.get(request.scope)
        if wait_queue is not None and received.grants:
            self._wake(wait_queue, 1)

    def settled(self, scope: Scope, verb: Verb) -> None:
        """Wake a parked receive: a settlement may free a queue or a key, or lead to a redelivery."""
        wait_queue = self._wait_queues.get(scope)
        if wait_queue is not None and (wait_queue.needs_acks or verb is not Verb.ACK):
            self._wake(wait_queue, 1)

    def changed(self, group: str) -> None:
        """Wake all parked receives of a group that was resumed, moved, changed or deleted."""
        if group not in self._directory.snapshot.groups:
            self._notices.forget(group)
        for (name, _), wait_queue in list(self._wait_queues.items()):
            if name == group:
                self._wake(wait_queue, len(wait_queue.parked))

    def woken(self, group: str, client: str, at: datetime | None) -> None:
        """Wake a parked receive because another gateway released something that is ready from `at` on."""
        wait_queue = self._wait_queues.get((group, client))
        if wait_queue is None:
            return
        if at is None or at <= self._clock():
            self._wake(wait_queue, 1)
        else:
            self._set_timer(wait_queue, at)

    def missed(self) -> None:
        """Wake one parked receive of each scope, because wake-ups of other gateways may have been lost."""
        for wait_queue in list(self._wait_queues.values()):
            self._wake(wait_queue, 1)

    def stop(self) -> None:
        """End all parked receives now."""
        self._is_stopping = True
        for wait_queue in list(self._wait_queues.values()):
            self._wake(wait_queue, len(wait_queue.parked))

    def _current(self, group: Group) -> Group:
        """Return the current version of a group, which may have changed while the receive was parked."""
        found = self._directory.snapshot.groups.get(group.name)
        if found is None:
            raise GroupNotFound(f"group {group.name} was deleted", group=group.name)
        return found

    def _has_other_waiters(self, request: ReceiveRequest, own: int) -> bool:
        """Return whether other receives are parked. In an ordered group, others may park while keys are being read."""
        wait_queue = self._wait_queues.get(request.scope)
        return request.group.is_ordered or (wait_queue is not None and len(wait_queue.parked) > own)

    def _wake_after_acks(self, request: ReceiveRequest, received: ReceiveResult, *, has_other_waiters: bool) -> None:
        """Wake parked receives after carried acks, unless the store has reported whether more is ready.

        In queue mode a receive mostly leases the queue that it has just freed, so a wake-up would be in vain.
        """
        is_reported = has_other_waiters and bool(received.batches)
        # Settlements of a broadcast group may concern other scopes.
        if request.group.mode is not Mode.BROADCAST:
            wait_queue = self._wait_queues.get(request.scope)
            if is_reported or wait_queue is None or not wait_queue.needs_acks:
                return
        for settlement, result in zip(request.settlements, received.settled, strict=True):
            scope = settlement.lease.group, settlement.lease.client
            if result.outcome.is_done and not (is_reported and scope == request.scope):
                self.settled(scope, settlement.verb)

    def _wake_next(self, scope: Scope, received: ReceiveResult) -> None:
        """Wake the next parked receive if more messages are ready, or set the timer for it."""
        wait_queue = self._wait_queues.get(scope)
        if wait_queue is None or not received.batches:
            return
        if received.has_more:
            self._wake(wait_queue, 1)
        else:
            self._set_timer(wait_queue, self._next_try(received))

    def _next_try(self, received: ReceiveResult) -> datetime | None:
        """Return when to try again without a wake-up."""
        if not received.has_unread:
            return received.next_at
        soon = self._clock() + _UNREAD_PAUSE
        return soon if received.next_at is None else min(soon, received.next_at)

    def _enrol(self, request: ReceiveRequest, parked: ParkedReceive) -> WaitQueue:
        if self._parked >= self._max_parked:
            raise Overloaded(f"{self._max_parked} requests are waiting already: poll without wait", retry_after=1)
        limit = self._max_parked_per_key
        if request.key and self._parked_by_key.get(request.key, 0) >= limit:
            raise TooManyParked(f"At most {limit} receives of one key can be parked. Poll without wait.", retry_after=1)
        wait_queue = self._wait_queues.get(request.scope)
        if wait_queue is None:
            wait_queue = self._wait_queues[request.scope] = WaitQueue(request)
            topic = request.group.topic
            wait_queues = self._by_topic.setdefault(topic, {})
            if not wait_queues and self._is_waking:
                self._watches[topic] = self._log.watch(topic, lambda _, count: self._arrived(topic, count))
            wait_queues[request.scope] = wait_queue
        wait_queue.parked[parked] = None
        return wait_queue

    def _leave(self, request: ReceiveRequest, wait_queue: WaitQueue, parked: ParkedReceive) -> None:
        del wait_queue.parked[parked]
        if parked.is_woken:
            self._wake(wait_queue, 1)
        if wait_queue.parked:
            return
        if wait_queue.timer is not None:
            wait_queue.timer.cancel()
        del self._wait_queues[request.scope]
        wait_queues = self._by_topic[request.group.topic]
        del wait_queues[request.scope]
        if not wait_queues:
            del self._by_topic[request.group.topic]
            self._watches.pop(request.group.topic, lambda: None)()

    def _arrived(self, topic: str, count: int) -> None:
        for wait_queue in list(self._by_topic.get(topic, {}).values()):
            # A queue is leased to one consumer, however many messages arrived on it.
            self._wake(wait_queue, 1 if wait_queue.is_queue_mode else count)

    @staticmethod
    def _wake(wait_queue: WaitQueue, count: int) -> None:
        if count <= 0:
            return
        now = time.monotonic()
        for parked in wait_queue.parked:
            if not parked.is_woken:
                parked.woken_at = now
                parked.wake()
                count -= 1
                if not count:
                    return

    def _expect(self, wait_queue: WaitQueue, received: ReceiveResult) -> None:
        """Update which events can serve the parked receives, and set their timer."""
        is_busy = received.state is ReceiveState.BUSY and wait_queue.is_exclusive
        wait_queue.needs_acks = is_busy or received.is_span_full or received.state is ReceiveState.IN_FLIGHT_CAP
        self._set_timer(wait_queue, self._next_try(received))

    def _set_timer(self, wait_queue: WaitQueue, next_at: datetime | None) -> None:
        if next_at is None or not self._is_waking:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + max((next_at - self._clock()).total_seconds(), _SOONEST_TIMER) + _EARLY
        if (
            wait_queue.timer is None
            or wait_queue.timer.cancelled()
            or at < wait_queue.timer_at
            or wait_queue.timer_at <= loop.time()
        ):
            if wait_queue.timer is not None:
                wait_queue.timer.cancel()
            wait_queue.timer_at = at
            wait_queue.timer = loop.call_at(at, self._wake, wait_queue, 1)


def _max_silence(group: Group) -> float:
    """Return the maximum seconds between two tries, so that a parked broadcast client does not exceed its TTL."""
    return group.client_ttl.total_seconds() / 2 if group.mode is Mode.BROADCAST else math.inf
