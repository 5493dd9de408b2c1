"""The gateway's cache of topics: the queues of each topic, in the order that keys are hashed over, and their bounds.

- The registered queues ("broker-a:8;broker-b:8") are stored in the name servers, in RocketMQ's configuration of ordered
  topics. A route lists live brokers only, and a key must not change its queue when a broker fails.
- Bounds are taken from the responses to sends and pulls and, at most every half second while they are used, from the
  statistics of the brokers. A broker reports a stored message shortly after it has confirmed it. A max offset that is
  known from a confirmation is therefore kept for a while, even if the statistics report less. Confirmations to other
  gateways are not known here: a caller that must not miss them waits for consume_queue_barrier.py first.
- A queue whose broker does not respond is closed. Its last known bounds are kept.
- Only the broker itself shows whether it is live. If a route no longer lists a broker, either the broker is down or the
  name server has just started.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import structlog

from mqgate.adapters.rocketmq.consume_queue_barrier import ConsumeQueueBarrier
from mqgate.adapters.rocketmq.faults import translating
from mqgate.core.errors import StorageUnavailable, TopicNotFound
from mqgate.core.lease import BrokerBoot, QueueBounds
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import Refused, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.routes import Route

__all__ = ["Queue", "Topic", "Topics"]

_log = structlog.get_logger()
_FRESH = 0.5
_AGEING = 0.25
_TIMEOUT = 0.5
# A broker that has just started may refuse to report its boot time for this long after the connection was made.
_STARTING_FOR = 10.0
# The first known bounds decide where a group starts, so they are waited for longer.
_FIRST_TIMEOUT = 3.0
_MISSING_FOR = 0.5
# A topic that is only published to is refreshed this often: its permissions and queues may have changed.
_PUBLISH_REFRESH = 5.0
# A confirmed max offset overrides smaller statistics for this long.
_CONFIRMATION_TRUST = 3.0


class Queue:
    """One queue. `bounds` is None until its broker has reported them."""

    __slots__ = (
        "boot",
        "bounds",
        "broker",
        "can_write",
        "confirmed_at",
        "confirmed_end",
        "grew_at",
        "id",
        "is_closed",
        "last_append_ms",
        "name",
        "reset_version",
        "version",
    )

    def __init__(self, broker: str, queue_id: int) -> None:
        self.broker = broker
        self.id = queue_id
        self.name = f"{broker}:{queue_id}"
        self.bounds: QueueBounds | None = None
        self.boot: BrokerBoot | None = None
        self.version = 0
        # The version at which anything but its max offset changed, or its max offset became lower.
        self.reset_version = 0
        self.grew_at = 0.0
        # From the broker's clock, or from this gateway's clock if it observed the append. 0 if unknown.
        self.last_append_ms = 0
        self.confirmed_at = 0.0
        self.confirmed_end = 0
        self.is_closed = True
        self.can_write = False


class _BrokerState:
    """The state of one topic on one broker. `refresh` is the running refresh, if any."""

    __slots__ = ("can_read", "queue_count", "refresh", "refreshed_at")

    def __init__(self) -> None:
        self.can_read = False
        self.queue_count = 0
        self.refreshed_at = 0.0
        self.refresh: asyncio.Task[None] | None = None


class Topic:
    def __init__(self, name: str, wire: str) -> None:
        self.name = name
        self.wire = wire
        self.queues: dict[str, Queue] = {}
        # Keys are hashed over these.
        self.slots: list[Queue] = []
        # In the order of their last change.
        self.changed: dict[str, Queue] = {}
        self.broker_states: dict[str, _BrokerState] = {}
        self.closed: frozenset[str] = frozenset()
        self.next_slot = 0
        self.appended_at = 0.0
        self.is_being_dropped = False
        self.watchers: list[Callable[[str, int], None]] = []


class Topics:
    def __init__(self, client: RocketMQClient, wire: Callable[[str], str]) -> None:
        self._client = client
        self._wire = wire
        self._topics: dict[str, Topic] = {}
        self._loading: dict[str, asyncio.Task[Topic]] = {}
        self._missing_until: dict[str, float] = {}
        # Boot time in ms by broker, with the connection that reported it.
        self._boots: dict[str, tuple[tuple[str, int], int]] = {}
        # Brokers that refused to report it, with the connection and the time of the first refusal.
        self._starting_since: dict[str, tuple[tuple[str, int], float]] = {}
        self._barrier = ConsumeQueueBarrier(client)
        self.version = 1

    async def get(self, name: str) -> Topic:
        """Return a topic, loaded if need be. Raise TopicNotFound if RocketMQ does not have it."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if self.is_known_missing(name):
            raise _not_found(name)
        loading = self._loading.get(name)
        if loading is None:
            loading = self._loading[name] = asyncio.create_task(self._load(name))
            loading.add_done_callback(lambda task: self._loaded(name, task))
        if name not in self._missing_until:
            return await asyncio.shield(loading)
        # No topic can be created while the name servers are down, so a topic that was missing is still missing.
        await asyncio.wait((loading,), timeout=_TIMEOUT)
        if not loading.done() or isinstance(loading.exception(), StorageUnavailable):
            raise _not_found(name)
        return loading.result()

    async def get_rechecked(self, name: str) -> Topic:
        """Return a topic even if it was missing before: another gateway may have created it since."""
        before = self._loading.get(name)
        if before is not None:
            await asyncio.wait((before,))
        self._missing_until.pop(name, None)
        return await self.get(name)

    def known(self, name: str) -> Topic | None:
        """Return a topic if it is cached."""
        return self._topics.get(name)

    def is_known_missing(self, name: str) -> bool:
        """Return whether the topic did not exist at most half a second ago."""
        return name in self._missing_until and name not in self._topics and time.monotonic() < self._missing_until[name]

    def _loaded(self, name: str, task: asyncio.Task[Topic]) -> None:
        del self._loading[name]
        # Mark the exception as retrieved: the caller may have been cancelled.
        if not task.cancelled():
            task.exception()

    async def _load(self, name: str) -> Topic:
        wire = self._wire(name)
        with translating(name):
            layout = await self._client.admin.layout(wire)
            route = await self._client.routes.find(wire, is_fresh=True)
        routed = [queue_set.broker for queue_set in route.queues] if route is not None else []
        if await self._is_on_no_broker(wire, {*layout, *routed}):
            self._missing_until[name] = time.monotonic() + _MISSING_FOR
            raise _not_found(name)
        return self.update(name, layout, route)

    async def _is_on_no_broker(self, wire: str, brokers: Iterable[str]) -> bool:
        """Return whether all of these brokers report that they lack the topic. Layout and route may be outdated."""
        try:
            found = await asyncio.gather(*(self._client.admin.topic(broker, wire) for broker in brokers))
        except RocketMQError:
            return False
        return not any(found)

    async def is_deleted(self, topic: Topic) -> bool:
        """Return whether a topic that one broker lacks was deleted everywhere, and if so remove it from the cache."""
        if not topic.is_being_dropped and not await self._is_on_no_broker(topic.wire, topic.broker_states):
            return False
        if self._topics.get(topic.name) is topic:
            self.remove(topic.name)
        return True

    def update(self, name: str, layout: Mapping[str, int], route: Route | None) -> Topic:
        """Add a topic to the cache, or update its queues."""
        topic = self._topics.get(name) or Topic(name, self._wire(name))
        if not layout and route is not None:
            layout = {queue_set.broker: queue_set.write for queue_set in route.queues}
        ordered = sorted((queue_id, broker) for broker, count in layout.items() for queue_id in range(count))
        topic.slots = [self._queue(topic, broker, queue_id) for queue_id, broker in ordered]
        self._apply_route(topic, route)
        for state in topic.broker_states.values():
            state.refreshed_at = 0.0
        self._topics[name] = topic
        self._missing_until.pop(name, None)
        for arrived in list(topic.watchers):
            arrived("", 1)
        return topic

    def remove(self, name: str) -> Topic | None:
        self._missing_until[name] = time.monotonic() + _MISSING_FOR
        return self._topics.pop(name, None)

    def invalidate_topic(self, name: str) -> None:
        """Drop a topic from the cache because another gateway created, changed or deleted it."""
        self._missing_until.pop(name, None)
        loading = self._loading.get(name)
        if loading is not None:
            # It may have read the old state.
            loading.add_done_callback(lambda _: (self._topics.pop(name, None), self._missing_until.pop(name, None)))
        topic = self._topics.pop(name, None)
        for arrived in list(topic.watchers) if topic is not None else ():
            arrived("", 1)

    def _queue(self, topic: Topic, broker: str, queue_id: int) -> Queue:
        queue = topic.queues.get(f"{broker}:{queue_id}")
        if queue is None:
            queue = Queue(broker, queue_id)
            topic.queues[queue.name] = queue
            topic.broker_states.setdefault(broker, _BrokerState())
            topic.closed |= {queue.name}
        return queue

    def _apply_route(self, topic: Topic, route: Route | None) -> None:
        """Add queues that the route lists and the topic lacks, and update permissions."""
        writable: dict[str, int] = {}
        for broker, readable, writable_count in route.queues if route is not None else ():
            writable[broker] = writable_count
            for queue_id in range(readable):
                self._queue(topic, broker, queue_id)
            if broker in topic.broker_states:
                topic.broker_states[broker].can_read = readable > 0
        for queue in topic.queues.values():
            if queue.broker in writable:
                queue.can_write = queue.id < writable[queue.broker]

    async def ensure_fresh(self, topic: Topic) -> None:
        """Wait until no bounds are older than half a second, or until the timeout."""
        if pending_refreshes := self.pending_refreshes(topic):
            await self.wait_for_refreshes(topic, pending_refreshes)

    def pending_refreshes(self, topic: Topic) -> list[asyncio.Task[None]]:
        """Return the refreshes to wait for. Bounds of medium age are refreshed in the background."""
        now = time.monotonic()
        waiting: list[asyncio.Task[None]] = []
        for broker, state in topic.broker_states.items():
            age = now - state.refreshed_at
            if age > _AGEING:
                self._start_refresh(topic, broker, state)
            if state.refresh is not None and age > _FRESH:
                waiting.append(state.refresh)
        return waiting

    async def wait_for_refreshes(self, topic: Topic, pending_refreshes: Iterable[asyncio.Task[None]]) -> None:
        is_new = any(queue.bounds is None for queue in topic.queues.values())
        await asyncio.wait(pending_refreshes, timeout=_FIRST_TIMEOUT if is_new else _TIMEOUT)

    async def refresh_now(self, topic: Topic, broker: str | None) -> None:
        """Refresh one broker, or all if None, whatever the age of the bounds."""
        for name, state in topic.broker_states.items():
            if broker in {None, name}:
                state.refreshed_at = 0.0
        self._client.routes.invalidate(topic.wire)
        await self.ensure_fresh(topic)

    async def refresh_after_indexing(self, topic: Topic) -> None:
        """Refresh the bounds so that they include every message confirmed before, to any client."""
        await self.ensure_fresh(topic)
        brokers = {queue.broker for queue in topic.queues.values() if not queue.is_closed}
        await asyncio.gather(*map(self._barrier.wait, brokers))
        await self.refresh_bounds(topic)

    async def refresh_bounds(self, topic: Topic) -> None:
        """Refresh the bounds with requests that start now."""
        since = time.monotonic()
        # A running refresh may have started before, so a second round may be needed.
        for _ in range(2):
            old = [(broker, state) for broker, state in topic.broker_states.items() if state.refreshed_at < since]
            if old:
                await self.wait_for_refreshes(topic, [self._start_refresh(topic, *entry) for entry in old])

    def _start_refresh(self, topic: Topic, broker: str, state: _BrokerState) -> asyncio.Task[None]:
        if state.refresh is None:
            state.refresh = asyncio.create_task(self._refresh_broker(topic, broker, state))
        return state.refresh

    async def _refresh_broker(self, topic: Topic, broker: str, state: _BrokerState) -> None:
        client = self._client
        refreshed_at = time.monotonic()
        is_readable = False
        try:
            await self._update_route(topic, broker)
            is_readable = state.can_read
            if is_readable:
                requested_at = time.monotonic()
                found = await client.offsets.bounds(broker, topic.wire)
                if 0 < state.queue_count < len(found):
                    # An operator has added queues.
                    client.routes.invalidate(topic.wire)
                    await self._update_route(topic, broker)
                state.queue_count = len(found)
                await self._update_boot(topic, broker)
                for queue_id, (low, end, stored_ms) in found.items():
                    queue = topic.queues.get(f"{broker}:{queue_id}")
                    if queue is not None:
                        self.report_bounds(topic, queue, low, end, requested_at, stored_ms)
        except RocketMQError as error:
            is_readable = False
            client.routes.invalidate(topic.wire)
            if isinstance(error, Refused) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                await self.is_deleted(topic)
            _log.debug("queue bounds not reported by broker", topic=topic.name, broker=broker, error=str(error))
        finally:
            state.refreshed_at = refreshed_at
            state.refresh = None
            self._set_open(topic, broker, is_open=is_readable)

    async def _update_boot(self, topic: Topic, broker: str) -> None:
        """Read the boot time of a broker, once per connection, and the offsets of its queues at that time."""
        client = self._client
        at_ms = await self._boot_time_ms(broker)
        queues = [queue for queue in topic.queues.values() if queue.broker == broker]
        if not at_ms:
            # The known boot is of an earlier run.
            for queue in queues:
                queue.boot = None
            return
        outdated = [queue for queue in queues if queue.boot is None or queue.boot.at_ms != at_ms]
        floors = await asyncio.gather(*(client.offsets.at(broker, topic.wire, queue.id, at_ms) for queue in outdated))
        for queue, floor in zip(outdated, floors, strict=True):
            queue.boot = BrokerBoot(at_ms, floor)
            if queue.bounds is not None:
                self._mark_changed(topic, queue)
                queue.reset_version = queue.version

    async def _boot_time_ms(self, broker: str) -> int:
        """Return the boot time of a broker in ms, or 0 if the broker refuses to report it."""
        session = self._client.brokers.session(broker)
        known = self._boots.get(broker)
        if known is None or known[0] != session:
            try:
                runtime = await self._client.admin.runtime(broker)
            except Refused as error:
                if error.code == ResponseCode.SYSTEM_ERROR and self._may_be_starting(broker, session):
                    # A starting broker cannot report it yet. Its queues stay closed until it does.
                    raise
                # The user lacks the permission. Then a truncated tail is detected only if the queue is shorter now.
                _log.info("boot time not reported by broker", broker=broker, error=str(error))
                runtime = {}
            known = self._boots[broker] = session, int(runtime.get("bootTimestamp") or 0)
        return known[1]

    def _may_be_starting(self, broker: str, session: tuple[str, int]) -> bool:
        """Return whether the first refusal on this connection is recent."""
        known = self._starting_since.get(broker)
        if known is None or known[0] != session:
            known = self._starting_since[broker] = session, time.monotonic()
        return time.monotonic() - known[1] < _STARTING_FOR

    async def _update_route(self, topic: Topic, broker: str) -> None:
        """Apply the route of a topic. Bypass the cache if the cached route lacks the broker."""
        find = self._client.routes.find
        try:
            route = await find(topic.wire)
            if route is None or broker not in route.masters:
                route = await find(topic.wire, is_fresh=True)
        except RocketMQError:
            return
        self._apply_route(topic, route)

    def _set_open(self, topic: Topic, broker: str, *, is_open: bool) -> None:
        """Open or close the queues of a broker."""
        for queue in topic.queues.values():
            if queue.broker == broker:
                queue.is_closed = not is_open or queue.bounds is None
        closed = frozenset(queue.name for queue in topic.queues.values() if queue.is_closed)
        opened, topic.closed = topic.closed - closed, closed
        for name in opened:
            for arrived in list(topic.watchers):
                arrived(name, 1)

    def close_queues(self, topic: Topic, broker: str) -> None:
        """Close the queues of a broker that did not respond, until it responds."""
        self._client.routes.invalidate(topic.wire)
        self._set_open(topic, broker, is_open=False)
        state = topic.broker_states.get(broker)
        if state is not None:
            state.refreshed_at = 0.0

    def stop_writes(self, topic: Topic, broker: str) -> None:
        """Stop writes of a topic to a broker until a route allows them."""
        for queue in topic.queues.values():
            if queue.broker == broker:
                queue.can_write = False

    def refresh_if_due(self, topic: Topic) -> None:
        """Refresh a topic in the background if that has not happened for some seconds. Publishers call this."""
        now = time.monotonic()
        for broker, state in topic.broker_states.items():
            if now - state.refreshed_at > _PUBLISH_REFRESH:
                self._start_refresh(topic, broker, state)

    def report_bounds(
        self, topic: Topic, queue: Queue, low: int, end: int, requested_at: float, stored_ms: int = 0
    ) -> None:
        """Apply bounds from statistics or from a pull, and the store time of the newest message if it is known.

        Responses may arrive out of order: the response to a request from before the last growth cannot shrink a queue.
        """
        bounds = queue.bounds
        if bounds == (low, end):
            return
        if self._is_confirmation_recent(queue):
            end = max(end, queue.confirmed_end)
        if bounds is not None and requested_at <= queue.grew_at:
            end = max(end, bounds.max)
        if bounds is not None and end < bounds.max:
            _log.warning("queue truncated", topic=topic.name, queue=queue.name, was=bounds.max, now=end)
        self._set_bounds(topic, queue, QueueBounds(low, max(low, end)), stored_ms)

    def confirm_append(self, topic: Topic, queue: Queue, end: int) -> None:
        """Apply the confirmation of an append: the max offset of the queue is at least `end`."""
        # Confirmations may arrive out of order.
        now = time.monotonic()
        if now >= queue.confirmed_at + _CONFIRMATION_TRUST or end > queue.confirmed_end:
            queue.confirmed_end = end
        topic.appended_at = queue.confirmed_at = now
        bounds = queue.bounds
        if bounds is not None and end > bounds[1]:
            # The same as `_set_bounds`, without its checks: every publish runs this.
            queue.grew_at, queue.last_append_ms = now, time.time_ns() // 1_000_000
            queue.bounds = tuple.__new__(QueueBounds, (bounds[0], end))
            self._mark_changed(topic, queue)
            for arrived in list(topic.watchers) if topic.watchers else ():
                arrived(queue.name, end - bounds[1])

    @staticmethod
    def _is_confirmation_recent(queue: Queue) -> bool:
        return time.monotonic() < queue.confirmed_at + _CONFIRMATION_TRUST

    def _set_bounds(self, topic: Topic, queue: Queue, bounds: QueueBounds, stored_ms: int) -> None:
        before = queue.bounds
        if before == bounds:
            return
        if before is None or bounds.max > before.max:
            queue.grew_at = time.monotonic()
            queue.last_append_ms = 0 if bounds.max == bounds.min else stored_ms or time.time_ns() // 1_000_000
        queue.bounds = bounds
        self._mark_changed(topic, queue)
        if before is None or bounds.min != before.min or bounds.max < before.max:
            queue.reset_version = queue.version
        # A shorter queue was recreated: all of its messages are new.
        arrived_count = bounds.max - (bounds.min if before is None or before.max > bounds.max else before.max)
        for arrived in list(topic.watchers) if arrived_count > 0 else ():
            arrived(queue.name, arrived_count)

    def _mark_changed(self, topic: Topic, queue: Queue) -> None:
        """Give a queue the next version."""
        self.version += 1
        queue.version = self.version
        topic.changed.pop(queue.name, None)
        topic.changed[queue.name] = queue

    def changed_since(self, topic: Topic, since: int) -> list[Queue]:
        found: list[Queue] = []
        for queue in reversed(topic.changed.values()):
            if queue.version <= since:
                break
            found.append(queue)
        return found

    def brokers(self) -> set[str]:
        """Return the brokers of all cached topics."""
        return {broker for topic in self._topics.values() for broker in topic.broker_states}

    async def close(self) -> None:
        """Cancel the running refreshes and loads."""
        await self._barrier.close()
        states = [state for topic in self._topics.values() for state in topic.broker_states.values()]
        tasks = [state.refresh for state in states if state.refresh]
        tasks += self._loading.values()  # type: ignore[arg-type] # of Topic, not of None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _not_found(name: str) -> TopicNotFound:
    return TopicNotFound(f"topic {name} is not registered: register it with PUT /v1/topics/{name}", topic=name)
