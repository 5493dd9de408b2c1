"""What this gateway knows of each topic: its queues, in the order that keys are hashed over, and their ends.

- The registered queues ("broker-a:8;broker-b:8") are kept by the name servers, in the place that RocketMQ has for
  ordered topics: a route names only brokers that live, and a key must not change its queue when one dies.
- Ends come from everywhere: answers to sends and pulls, and once in half a second, while somebody asks, from the
  brokers' statistics. A broker tells of a stored message a moment after it has confirmed it, so an end that we know
  from a confirmation is believed for a while although the statistics still say less. What was confirmed to others we
  do not know: who must not miss it asks when the broker has caught up (catching_up.py).
- A queue whose broker cannot be asked is closed; what is known of it stays.
- Whether a broker lives it tells itself. A route that does not name it any more says nothing: the broker may be dead,
  or the name server new.
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
_PATIENCE = 0.5
# For so long after a connection was made a broker may be too new to tell when it was started.
_HESITATION = 10.0
# Where a group begins is decided by the first ends we hear of: worth waiting for.
_FIRST_PATIENCE = 3.0
_UNKNOWN_FOR = 0.5
# Without a question for so long, permissions and queues may have been changed behind the back of one who publishes.
_UNASKED = 5.0
# For so long an end that was confirmed to us outweighs statistics that say less.
_BELIEVED = 3.0


class Queue:
    """One queue. `head` is None until its broker was heard."""

    __slots__ = (
        "boot",
        "broker",
        "can_write",
        "confirmed_at",
        "confirmed_end",
        "head",
        "id",
        "is_closed",
        "name",
        "rose_at",
        "rose_ms",
        "version",
    )

    def __init__(self, broker: str, queue_id: int) -> None:
        self.broker = broker
        self.id = queue_id
        self.name = f"{broker}:{queue_id}"
        self.head: QueueBounds | None = None
        self.boot: BrokerBoot | None = None
        self.version = 0
        self.rose_at = 0.0
        # When its newest message was stored: by its broker, or by our own clock if we saw it come; 0: not known.
        self.rose_ms = 0
        self.confirmed_at = 0.0
        self.confirmed_end = 0
        self.is_closed = True
        self.can_write = False


class _Share:
    """A topic's part on one broker: may it be read, its queues, when was it last asked, the question under way."""

    __slots__ = ("asked_at", "asking", "can_read", "count")

    def __init__(self) -> None:
        self.can_read = False
        self.count = 0
        self.asked_at = 0.0
        self.asking: asyncio.Task[None] | None = None


class Topic:
    def __init__(self, name: str, wire: str) -> None:
        self.name = name
        self.wire = wire
        self.queues: dict[str, Queue] = {}
        # What keys are hashed over.
        self.slots: list[Queue] = []
        # In the order of their last change, the latest last.
        self.changed: dict[str, Queue] = {}
        self.shares: dict[str, _Share] = {}
        self.closed: frozenset[str] = frozenset()
        self.turn = 0
        self.appended_at = 0.0
        self.is_being_dropped = False
        self.watchers: list[Callable[[str, int], None]] = []


class Topics:
    def __init__(self, client: RocketMQClient, wire: Callable[[str], str]) -> None:
        self._client = client
        self._wire = wire
        self._topics: dict[str, Topic] = {}
        self._loading: dict[str, asyncio.Task[Topic]] = {}
        self._unknown: dict[str, float] = {}
        # When each broker was started, as it said on which connection.
        self._boots: dict[str, tuple[tuple[str, int], int]] = {}
        # Which could not say, since when.
        self._hesitating: dict[str, tuple[tuple[str, int], float]] = {}
        self._catching_up = ConsumeQueueBarrier(client)
        self.version = 1

    async def get(self, name: str) -> Topic:
        """A topic as it is known; TopicNotFound if RocketMQ does not have it."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if self.is_unknown(name):
            raise _not_found(name)
        loading = self._loading.get(name)
        if loading is None:
            loading = self._loading[name] = asyncio.create_task(self._load(name))
            loading.add_done_callback(lambda task: self._loaded(name, task))
        if name not in self._unknown:
            return await asyncio.shield(loading)
        # Without name servers nothing can be made, so what they did not know last is not there now.
        await asyncio.wait((loading,), timeout=_PATIENCE)
        if not loading.done() or isinstance(loading.exception(), StorageUnavailable):
            raise _not_found(name)
        return loading.result()

    async def ask_for(self, name: str) -> Topic:
        """The same for who knows better: another gateway may have made the topic after we heard that there was none."""
        before = self._loading.get(name)
        if before is not None:
            await asyncio.wait((before,))
        self._unknown.pop(name, None)
        return await self.get(name)

    def known(self, name: str) -> Topic | None:
        """A topic that was met before."""
        return self._topics.get(name)

    def is_unknown(self, name: str) -> bool:
        """Whether there was no such topic a moment ago."""
        return name in self._unknown and name not in self._topics and time.monotonic() < self._unknown[name]

    def _loaded(self, name: str, task: asyncio.Task[Topic]) -> None:
        del self._loading[name]
        # Who asked may have left; whoever asks next hears of it again.
        if not task.cancelled():
            task.exception()

    async def _load(self, name: str) -> Topic:
        wire = self._wire(name)
        with translating(name):
            layout = await self._client.admin.layout(wire)
            route = await self._client.routes.find(wire, is_fresh=True)
        routed = [each.broker for each in route.queues] if route is not None else []
        if await self._is_nowhere(wire, {*layout, *routed}):
            self._unknown[name] = time.monotonic() + _UNKNOWN_FOR
            raise _not_found(name)
        return self.learn(name, layout, route)

    async def _is_nowhere(self, wire: str, brokers: Iterable[str]) -> bool:
        """Whether all brokers that should have a topic say that they do not; layout and route may be left over."""
        try:
            found = await asyncio.gather(*(self._client.admin.topic(broker, wire) for broker in brokers))
        except RocketMQError:
            return False
        return not any(found)

    async def is_gone(self, topic: Topic) -> bool:
        """A broker lacks a topic: whether it was deleted behind our back, and is forgotten; else only that broker's."""
        if not topic.is_being_dropped and not await self._is_nowhere(topic.wire, topic.shares):
            return False
        if self._topics.get(topic.name) is topic:
            self.forget(topic.name)
        return True

    def learn(self, name: str, layout: Mapping[str, int], route: Route | None) -> Topic:
        """Begin to know a topic, or learn that it has grown."""
        topic = self._topics.get(name) or Topic(name, self._wire(name))
        if not layout and route is not None:
            layout = {each.broker: each.write for each in route.queues}
        places = sorted((queue_id, broker) for broker, count in layout.items() for queue_id in range(count))
        topic.slots = [self._queue(topic, broker, queue_id) for queue_id, broker in places]
        self._follow(topic, route)
        for share in topic.shares.values():
            share.asked_at = 0.0
        self._topics[name] = topic
        self._unknown.pop(name, None)
        for arrived in list(topic.watchers):
            arrived("", 1)
        return topic

    def forget(self, name: str) -> Topic | None:
        self._unknown[name] = time.monotonic() + _UNKNOWN_FOR
        return self._topics.pop(name, None)

    def invalidate_topic(self, name: str) -> None:
        """Another gateway made a topic, enlarged or dropped it, or made it anew: whoever needs it next asks for it."""
        self._unknown.pop(name, None)
        loading = self._loading.get(name)
        if loading is not None:
            # Its answers may be from before.
            loading.add_done_callback(lambda _: (self._topics.pop(name, None), self._unknown.pop(name, None)))
        topic = self._topics.pop(name, None)
        for arrived in list(topic.watchers) if topic is not None else ():
            arrived("", 1)

    def _queue(self, topic: Topic, broker: str, queue_id: int) -> Queue:
        queue = topic.queues.get(f"{broker}:{queue_id}")
        if queue is None:
            queue = Queue(broker, queue_id)
            topic.queues[queue.name] = queue
            topic.shares.setdefault(broker, _Share())
            topic.closed |= {queue.name}
        return queue

    def _follow(self, topic: Topic, route: Route | None) -> None:
        """Take over what a route says: queues added behind our back, and what may be written."""
        writable: dict[str, int] = {}
        for each in route.queues if route is not None else ():
            writable[each.broker] = each.write
            for queue_id in range(each.read):
                self._queue(topic, each.broker, queue_id)
            if each.broker in topic.shares:
                topic.shares[each.broker].can_read = each.read > 0
        for queue in topic.queues.values():
            if queue.broker in writable:
                queue.can_write = queue.id < writable[queue.broker]

    async def freshen(self, topic: Topic) -> None:
        """Make sure that the ends are no older than half a second, where brokers answer in time."""
        if stale := self.stale(topic):
            await self.wait(topic, stale)

    def stale(self, topic: Topic) -> list[asyncio.Task[None]]:
        """The questions that `freshen` waits for; those about ends that only begin to age are asked meanwhile."""
        now = time.monotonic()
        waiting: list[asyncio.Task[None]] = []
        for broker, share in topic.shares.items():
            age = now - share.asked_at
            if age > _AGEING:
                self._asking(topic, broker, share)
            if share.asking is not None and age > _FRESH:
                waiting.append(share.asking)
        return waiting

    async def wait(self, topic: Topic, stale: Iterable[asyncio.Task[None]]) -> None:
        is_new = any(queue.head is None for queue in topic.queues.values())
        await asyncio.wait(stale, timeout=_FIRST_PATIENCE if is_new else _PATIENCE)

    async def look_again(self, topic: Topic, broker: str | None) -> None:
        """Ask anew now, whatever was known: about one broker, or about all."""
        for name, share in topic.shares.items():
            if broker in {None, name}:
                share.asked_at = 0.0
        self._client.routes.invalidate(topic.wire)
        await self.freshen(topic)

    async def catch_up(self, topic: Topic) -> None:
        """Make sure that the ends include all that was confirmed before, to whomever, where brokers answer in time."""
        await self.freshen(topic)
        brokers = {queue.broker for queue in topic.queues.values() if not queue.is_closed}
        await asyncio.gather(*map(self._catching_up.wait, brokers))
        await self.renew(topic)

    async def renew(self, topic: Topic) -> None:
        """Make sure that the ends are those of now, where brokers answer in time."""
        since = time.monotonic()
        # A question that is under way may be from before.
        for _ in range(2):
            asked = [self._asking(topic, name, each) for name, each in topic.shares.items() if each.asked_at < since]
            if asked:
                await self.wait(topic, asked)

    def _asking(self, topic: Topic, broker: str, share: _Share) -> asyncio.Task[None]:
        if share.asking is None:
            share.asking = asyncio.create_task(self._ask(topic, broker, share))
        return share.asking

    async def _ask(self, topic: Topic, broker: str, share: _Share) -> None:
        client = self._client
        asked_at = time.monotonic()
        is_readable = False
        try:
            await self._route(topic, broker)
            is_readable = share.can_read
            if is_readable:
                ends_asked_at = time.monotonic()
                ends = await client.offsets.bounds(broker, topic.wire)
                if 0 < share.count < len(ends):
                    # Somebody added queues behind our back.
                    client.routes.invalidate(topic.wire)
                    await self._route(topic, broker)
                share.count = len(ends)
                await self._learn_boot(topic, broker)
                for queue_id, (low, end, stored_ms) in ends.items():
                    queue = topic.queues.get(f"{broker}:{queue_id}")
                    if queue is not None:
                        self.told(topic, queue, low, end, ends_asked_at, stored_ms)
        except RocketMQError as error:
            is_readable = False
            client.routes.invalidate(topic.wire)
            if isinstance(error, Refused) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                await self.is_gone(topic)
            _log.debug("broker did not tell a topic's ends", topic=topic.name, broker=broker, error=str(error))
        finally:
            share.asked_at = asked_at
            share.asking = None
            self._open(topic, broker, is_open=is_readable)

    async def _learn_boot(self, topic: Topic, broker: str) -> None:
        """Ask a broker when it was started, once for each connection; and where its queues stood then."""
        client = self._client
        at_ms = await self._booted_at(broker)
        queues = [each for each in topic.queues.values() if each.broker == broker]
        if not at_ms:
            # What was known is of another run.
            for queue in queues:
                queue.boot = None
            return
        news = [each for each in queues if each.boot is None or each.boot.at_ms != at_ms]
        floors = await asyncio.gather(*(client.offsets.at(broker, topic.wire, each.id, at_ms) for each in news))
        for queue, floor in zip(news, floors, strict=True):
            queue.boot = BrokerBoot(at_ms, floor)
            if queue.head is not None:
                self._tell(topic, queue)

    async def _booted_at(self, broker: str) -> int:
        """When it was started, in ms; 0: it does not say."""
        session = self._client.brokers.session(broker)
        known = self._boots.get(broker)
        if known is None or known[0] != session:
            try:
                told = await self._client.admin.runtime(broker)
            except Refused as error:
                if error.code == ResponseCode.SYSTEM_ERROR and self._may_hesitate(broker, session):
                    # Just started, it cannot tell of itself yet: nothing is granted before that is known.
                    raise
                # A right that not every user has; without it a tail that a crash took is seen only if it is shorter.
                _log.info("broker does not tell when it was started", broker=broker, error=str(error))
                told = {}
            known = self._boots[broker] = session, int(told.get("bootTimestamp") or 0)
        return known[1]

    def _may_hesitate(self, broker: str, session: tuple[str, int]) -> bool:
        """Whether it is new enough on this connection that its answer may still come."""
        known = self._hesitating.get(broker)
        if known is None or known[0] != session:
            known = self._hesitating[broker] = session, time.monotonic()
        return time.monotonic() - known[1] < _HESITATION

    async def _route(self, topic: Topic, broker: str) -> None:
        """Follow the route; a fresh one while it lacks a broker that should be there, as it was without name server."""
        find = self._client.routes.find
        try:
            route = await find(topic.wire)
            if route is None or broker not in route.masters:
                route = await find(topic.wire, is_fresh=True)
        except RocketMQError:
            return
        self._follow(topic, route)

    def _open(self, topic: Topic, broker: str, *, is_open: bool) -> None:
        """Open or close a broker's queues."""
        for queue in topic.queues.values():
            if queue.broker == broker:
                queue.is_closed = not is_open or queue.head is None
        closed = frozenset(queue.name for queue in topic.queues.values() if queue.is_closed)
        opened, topic.closed = topic.closed - closed, closed
        for name in opened:
            for arrived in list(topic.watchers):
                arrived(name, 1)

    def shut(self, topic: Topic, broker: str) -> None:
        """A broker did not answer: its queues are closed until it does."""
        self._client.routes.invalidate(topic.wire)
        self._open(topic, broker, is_open=False)
        share = topic.shares.get(broker)
        if share is not None:
            share.asked_at = 0.0

    def bar(self, topic: Topic, broker: str) -> None:
        """A broker takes nothing for this topic, until a route says that it does."""
        for queue in topic.queues.values():
            if queue.broker == broker:
                queue.can_write = False

    def keep_up(self, topic: Topic) -> None:
        """A topic is published to: ask its brokers now and then, though nobody reads it or waits for the answer."""
        now = time.monotonic()
        for broker, share in topic.shares.items():
            if now - share.asked_at > _UNASKED:
                self._asking(topic, broker, share)

    def told(self, topic: Topic, queue: Queue, low: int, end: int, asked_at: float, stored_ms: int = 0) -> None:
        """Statistics, or a pull's answer, told a queue's ends; and when the last message was stored, if they know.

        Answers overtake each other: one to a question from before the end rose does not say that it fell.
        """
        head = queue.head
        if head == (low, end):
            return
        if self._is_believed(queue):
            end = max(end, queue.confirmed_end)
        if head is not None and asked_at <= queue.rose_at:
            end = max(end, head.max)
        if head is not None and end < head.max:
            _log.warning("queue became shorter", topic=topic.name, queue=queue.name, was=head.max, now=end)
        self._move(topic, queue, QueueBounds(low, max(low, end)), stored_ms)

    def confirmed(self, topic: Topic, queue: Queue, end: int) -> None:
        """A broker confirmed a message: the queue reaches at least so far."""
        # Confirmations overtake each other too.
        now = time.monotonic()
        if now >= queue.confirmed_at + _BELIEVED or end > queue.confirmed_end:
            queue.confirmed_end = end
        topic.appended_at = queue.confirmed_at = now
        head = queue.head
        if head is not None and end > head[1]:
            # As `_move`, for what certainly rises.
            queue.rose_at, queue.rose_ms = now, time.time_ns() // 1_000_000
            queue.head = tuple.__new__(QueueBounds, (head[0], end))
            self._tell(topic, queue)
            for arrived in list(topic.watchers) if topic.watchers else ():
                arrived(queue.name, end - head[1])

    @staticmethod
    def _is_believed(queue: Queue) -> bool:
        return time.monotonic() < queue.confirmed_at + _BELIEVED

    def _move(self, topic: Topic, queue: Queue, head: QueueBounds, stored_ms: int) -> None:
        before = queue.head
        if before == head:
            return
        if before is None or head.max > before.max:
            queue.rose_at = time.monotonic()
            queue.rose_ms = 0 if head.max == head.min else stored_ms or time.time_ns() // 1_000_000
        queue.head = head
        self._tell(topic, queue)
        # What became shorter was made anew: all that is in it came.
        came = head.max - (head.min if before is None or before.max > head.max else before.max)
        for arrived in list(topic.watchers) if came > 0 else ():
            arrived(queue.name, came)

    def _tell(self, topic: Topic, queue: Queue) -> None:
        """There is something new to say of a queue."""
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
        """All that should have something of a topic in use."""
        return {broker for topic in self._topics.values() for broker in topic.shares}

    async def close(self) -> None:
        """Wait for nothing that is under way."""
        await self._catching_up.close()
        tasks = [share.asking for topic in self._topics.values() for share in topic.shares.values() if share.asking]
        tasks += self._loading.values()  # type: ignore[arg-type] # of Topic, not of None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _not_found(name: str) -> TopicNotFound:
    return TopicNotFound(f"topic {name} is not registered: PUT /v1/topics/{name} first", topic=name)
