"""A cluster as Spark reads it: which queues there are, where they end, and their messages, page by page.

- The queues come from the layout that was registered for a topic, from its route, and from what was seen before: a
  route names only brokers that live, and one that is down must stop the query, not vanish from it.
- What may pass is tried again, each time after a longer pause and with a fresh route: a broker may have moved.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from mqgate.core.names import OWN_PREFIX
from mqgate.rocketmq import Refused, RocketMQClient, RocketMQError
from mqgate.rocketmq.messages import Status
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.pulled_page import PulledPage, decode_page
from mqgate.spark.log import AccessDenied, Ends, TopicMissing
from mqgate.spark.rocketmq_faults import is_transient, told

__all__ = ["Cluster", "QueueRef"]

_MIN_PAUSE, _MAX_PAUSE = 0.2, 5.0
# A broker shows a message to readers a moment after it has confirmed it.
_SOON = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_SYSTEM_PREFIXES = ("rmq_sys_", "RMQ_SYS_", "%", OWN_PREFIX)
_SYSTEM_TOPICS = {
    "BenchmarkTest",
    "DefaultHeartBeatSyncerTopic",
    "OFFSET_MOVED_EVENT",
    "SCHEDULE_TOPIC_XXXX",
    "SELF_TEST_TOPIC",
    "TBW102",
    "TRANS_CHECK_MAX_TIME_TOPIC",
}
_NOTHING = PulledPage([], [], [], [], ())
_Result = TypeVar("_Result")


class QueueRef(NamedTuple):
    """A queue."""

    topic: str
    broker: str
    id: int

    @property
    def name(self) -> str:
        return f"{self.broker}:{self.id}"

    @classmethod
    def of(cls, topic: str, queue: str) -> "QueueRef":
        broker, _, queue_id = queue.rpartition(":")
        if not broker or not queue_id.isdigit():
            raise TopicMissing(f"{queue} is no queue of topic {topic}: they are called broker:number, as in broker-a:0")
        return cls(topic, broker, int(queue_id))


class Cluster:
    """`retries`: how often something is tried again."""

    def __init__(self, client: RocketMQClient, *, namespace: str, retries: int) -> None:
        self._client = client
        self._prefix = f"{namespace}%" if namespace else ""
        self._retries = retries
        self._group = f"{self._prefix}{OWN_PREFIX}spark"
        # The brokers on which a topic was seen.
        self._seen: dict[str, set[str]] = {}

    async def close(self) -> None:
        await self._client.close()

    async def topics(self) -> list[str]:
        names = await self._with_retries("", self._client.admin.topics)
        brokers = await self._with_retries("", self._client.routes.brokers)
        # Every broker and every cluster has topics named after it.
        system = _SYSTEM_TOPICS | {each.name for each in brokers}
        system |= {f"{each.cluster}{end}" for each in brokers for end in ("", "_REPLY_TOPIC")}
        own = [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]
        # A mark that is left is that of somebody else's namespace.
        return [
            name for name in own if name not in system and not name.startswith(_SYSTEM_PREFIXES) and "%" not in name
        ]

    async def ends(self, topic: str) -> dict[QueueRef, Ends]:
        """All queues that may be read; TopicMissing if no broker has the topic."""
        routed = await self._with_retries(topic, lambda: self._routed(topic))
        shares = await asyncio.gather(
            *(self._with_retries(topic, partial(self._share, topic, broker, routed)) for broker in sorted(routed))
        )
        found = {queue_ref: ends for share in shares if share is not None for queue_ref, ends in share.items()}
        self._seen[topic] = {queue_ref.broker for queue_ref in found}
        if all(share is None for share in shares):
            raise TopicMissing(
                f"RocketMQ has no topic {topic}, or its brokers are down: register it first, or check its name and "
                "`namespace`"
            )
        if not found:
            raise AccessDenied(f"no broker lets anybody read topic {topic}: give it read permission (perm 4 or 6)")
        return found

    async def _routed(self, topic: str) -> dict[str, int | None]:
        """The brokers that should have a topic, and how many queues may be read there; None: they have to be asked."""
        wire = self._prefix + topic
        layout = await self._client.admin.layout(wire)
        route = await self._client.routes.find(wire, is_fresh=True)
        routed = {each.broker: each.read for each in route.queues} if route is not None else {}
        missing = ({*layout} | self._seen.get(topic, set())) - set(routed)
        if missing:
            # For the addresses: one that lives may lack the topic by now.
            await self._client.routes.brokers()
        return {**dict.fromkeys(missing), **routed}

    async def _share(self, topic: str, broker: str, routed: Mapping[str, int | None]) -> dict[QueueRef, Ends] | None:
        """The queues that a broker has of a topic; None if it does not have it."""
        wire = self._prefix + topic
        count = routed[broker]
        try:
            if count is None:
                config = await self._client.admin.topic(broker, wire)
                if config is None:
                    return None
                count = config.read_queues if config.can_read else 0
            ends = await self._client.offsets.bounds(broker, wire) if count else {}
        except Refused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        queue_refs = [QueueRef(topic, broker, queue_id) for queue_id in range(count)]
        found = {queue_ref: ends.get(queue_ref.id, (0, 0, 0)) for queue_ref in queue_refs}
        return {queue_ref: Ends(low, max(low, high)) for queue_ref, (low, high, _) in found.items()}

    async def offsets_at(self, topic: str, at_ms: int) -> dict[QueueRef, int]:
        search = self._client.offsets.at

        async def find(queue_ref: QueueRef) -> int:
            return await search(queue_ref.broker, self._prefix + topic, queue_ref.id, max(at_ms, 0))

        return await self._each(await self.ends(topic), find)

    async def committed(self, topic: str, group: str) -> dict[QueueRef, int]:
        async def find(queue_ref: QueueRef) -> int | None:
            wire, wire_topic = self._prefix + group, self._prefix + topic
            return await self._client.offsets.committed(queue_ref.broker, wire, wire_topic, queue_ref.id)

        found = await self._each(await self.ends(topic), find)
        return {queue_ref: offset for queue_ref, offset in found.items() if offset is not None}

    async def commit(self, offsets: Mapping[QueueRef, int], group: str) -> None:
        async def move(queue_ref: QueueRef) -> None:
            await self._meet(queue_ref)
            arguments = (
                queue_ref.broker,
                self._prefix + group,
                self._prefix + queue_ref.topic,
                queue_ref.id,
                offsets[queue_ref],
            )
            try:
                await self._client.offsets.commit(*arguments)
            except Refused as error:
                if error.code != ResponseCode.GROUP_NOT_EXIST:
                    raise
                await self._make_group(queue_ref.broker, self._prefix + group)
                await self._client.offsets.commit(*arguments)

        await self._each(offsets, move)

    async def _make_group(self, broker: str, wire: str) -> None:
        """What a Java consumer's first heart-beat makes: the group, and the topic by which the tools find it."""
        admin = self._client.admin
        # Where brokers make groups by themselves, to ask for it was enough.
        if not await admin.has_group(broker, wire):
            await admin.put_group(broker, wire)
        if await admin.topic(broker, f"%RETRY%{wire}") is None:
            await admin.put_topic(broker, f"%RETRY%{wire}", 1)

    async def meet(self, queue_ref: QueueRef) -> None:
        """Make sure that a queue's broker is known; TopicMissing if there is no such topic."""
        route = await self._with_retries(queue_ref.topic, lambda: self._meet(queue_ref))
        if not route:
            await self.ends(queue_ref.topic)

    async def _meet(self, queue_ref: QueueRef) -> bool:
        """Find a broker's address, if it is not known yet; whether the topic has a route."""
        route = await self._client.routes.find(self._prefix + queue_ref.topic)
        if queue_ref.broker not in self._client.routes.masters:
            await self._client.routes.brokers()
        return route is not None

    async def pull(self, queue_ref: QueueRef, offset: int, most: int) -> PulledPage:
        """Consecutive messages from an offset on, as many as the broker gives; none if they are gone, or never come."""
        left = most

        async def pull() -> PulledPage:
            nonlocal left
            # A broker may have been told to answer more than a frame can hold: what failed is asked for in pieces.
            now, left = left, max(left // 4, 1)
            return await self._pull(queue_ref, offset, now)

        return await self._with_retries(queue_ref.topic, pull)

    async def _pull(self, queue_ref: QueueRef, offset: int, most: int) -> PulledPage:
        wire = self._prefix + queue_ref.topic
        pauses = iter(_SOON)
        has_made_group = False
        while True:
            try:
                pulled, data = await self._client.messages.pull_undecoded(
                    queue_ref.broker, wire, queue_ref.id, offset, most, group=self._group
                )
            except Refused as error:
                if error.code != ResponseCode.GROUP_NOT_EXIST or has_made_group:
                    raise
                await self._client.admin.put_group(queue_ref.broker, self._group)
                has_made_group = True
                continue
            if pulled.status is Status.FOUND:
                return decode_page(data).from_offset(offset)
            is_reset = pulled.remark == "OFFSET_RESET"
            pause = next(pauses, None)
            if pause is None or (pulled.status is Status.MOVED and offset < pulled.min_offset and not is_reset):
                return _NOTHING
            await asyncio.sleep(pause)

    async def _each(
        self, queue_refs: Mapping[QueueRef, object], work: Callable[[QueueRef], Awaitable[_Result]]
    ) -> dict[QueueRef, _Result]:
        found = await asyncio.gather(
            *(self._with_retries(queue_ref.topic, partial(work, queue_ref)) for queue_ref in queue_refs)
        )
        return dict(zip(queue_refs, found, strict=True))

    async def _with_retries(self, topic: str, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Do something, again where that may help; LogError if it does not."""
        attempt = 0
        while True:
            try:
                return await work()
            except RocketMQError as error:
                if attempt >= self._retries or not is_transient(error):
                    raise told(error, topic) from error
            pause = min(_MIN_PAUSE * 2**attempt, _MAX_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that executors do not come all at once
            attempt += 1
            self._client.routes.invalidate(self._prefix + topic)
            with contextlib.suppress(RocketMQError):
                # Where the brokers are now, as far as somebody knows.
                await self._client.routes.brokers()
