"""A RocketMQ cluster as read by Spark: queues, their bounds, and pages of messages.

- The queues of a topic are found in its registered layout, in its route, and in earlier results. A route names only
  running brokers. If a broker is down, the query must fail instead of skipping its queues.
- Transient errors are retried with growing pauses and a new route, because a broker may have a new address.
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
from mqgate.rocketmq.puller import READABLE_PAUSES, pull_undecoded
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.pulled_page import PulledPage, decode_page
from mqgate.spark.log import AccessDenied, Ends, TopicMissing
from mqgate.spark.rocketmq_faults import is_transient, to_log_error

__all__ = ["Cluster", "QueueRef"]

_MIN_PAUSE, _MAX_PAUSE = 0.2, 5.0
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
_EMPTY_PAGE = PulledPage([], [], [], [], ())
_Result = TypeVar("_Result")


class QueueRef(NamedTuple):
    """Reference to a queue."""

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
            raise TopicMissing(
                f"{queue} is not a queue of topic {topic}: write it as broker:number, such as broker-a:0"
            )
        return cls(topic, broker, int(queue_id))


class Cluster:
    """Client of a cluster that retries transient errors up to `retries` times."""

    def __init__(self, client: RocketMQClient, *, namespace: str, retries: int) -> None:
        self._client = client
        self._prefix = f"{namespace}%" if namespace else ""
        self._retries = retries
        self._group = f"{self._prefix}{OWN_PREFIX}spark"
        # Brokers that had queues of a topic in an earlier call.
        self._seen: dict[str, set[str]] = {}

    async def close(self) -> None:
        await self._client.close()

    async def topics(self) -> list[str]:
        names = await self._with_retries("", self._client.admin.topics)
        brokers = await self._with_retries("", self._client.routes.brokers)
        # RocketMQ creates topics named after every broker and every cluster.
        system = _SYSTEM_TOPICS | {broker.name for broker in brokers}
        system |= {f"{broker.cluster}{suffix}" for broker in brokers for suffix in ("", "_REPLY_TOPIC")}
        own = [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]
        # A remaining % belongs to another namespace.
        return [
            name for name in own if name not in system and not name.startswith(_SYSTEM_PREFIXES) and "%" not in name
        ]

    async def ends(self, topic: str) -> dict[QueueRef, Ends]:
        """Return the bounds of all readable queues. Raise TopicMissing if no broker has the topic."""
        routed = await self._with_retries(topic, lambda: self._route(topic))
        by_broker = await asyncio.gather(
            *(self._with_retries(topic, partial(self._queues_on, topic, broker, routed)) for broker in sorted(routed))
        )
        found = {queue_ref: ends for queues in by_broker if queues is not None for queue_ref, ends in queues.items()}
        self._seen[topic] = {queue_ref.broker for queue_ref in found}
        if all(queues is None for queues in by_broker):
            raise TopicMissing(
                f"RocketMQ has no topic {topic}, or its brokers are down: register it first, or check its name and "
                "`namespace`"
            )
        if not found:
            raise AccessDenied(f"topic {topic} is not readable on any broker: give it read permission (perm 4 or 6)")
        return found

    async def _route(self, topic: str) -> dict[str, int | None]:
        """Return the brokers of a topic and their readable queues; None if the route does not name the broker."""
        wire_name = self._prefix + topic
        layout = await self._client.admin.layout(wire_name)
        route = await self._client.routes.find(wire_name, is_fresh=True)
        routed = {queue.broker: queue.read for queue in route.queues} if route is not None else {}
        missing = ({*layout} | self._seen.get(topic, set())) - set(routed)
        if missing:
            # Refresh the addresses: a running broker may no longer have the topic.
            await self._client.routes.brokers()
        return {**dict.fromkeys(missing), **routed}

    async def _queues_on(
        self, topic: str, broker: str, routed: Mapping[str, int | None]
    ) -> dict[QueueRef, Ends] | None:
        """Return the queues of a topic on a broker, or None if the broker does not have the topic."""
        wire_name = self._prefix + topic
        count = routed[broker]
        try:
            if count is None:
                config = await self._client.admin.topic(broker, wire_name)
                if config is None:
                    return None
                count = config.read_queues if config.can_read else 0
            ends = await self._client.offsets.bounds(broker, wire_name) if count else {}
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

        return await self._for_each(await self.ends(topic), find)

    async def committed(self, topic: str, group: str) -> dict[QueueRef, int]:
        async def find(queue_ref: QueueRef) -> int | None:
            wire_group, wire_topic = self._prefix + group, self._prefix + topic
            return await self._client.offsets.committed(queue_ref.broker, wire_group, wire_topic, queue_ref.id)

        found = await self._for_each(await self.ends(topic), find)
        return {queue_ref: offset for queue_ref, offset in found.items() if offset is not None}

    async def commit(self, offsets: Mapping[QueueRef, int], group: str) -> None:
        async def move(queue_ref: QueueRef) -> None:
            await self._resolve(queue_ref)
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
                await self._create_group(queue_ref.broker, self._prefix + group)
                await self._client.offsets.commit(*arguments)

        await self._for_each(offsets, move)

    async def _create_group(self, broker: str, wire_name: str) -> None:
        """Create the group and its retry topic, as the first heartbeat of a Java consumer does.

        The tools of RocketMQ find a group by its retry topic.
        """
        admin = self._client.admin
        # Brokers with autoCreateSubscriptionGroup create the group during this query.
        if not await admin.has_group(broker, wire_name):
            await admin.put_group(broker, wire_name)
        if await admin.topic(broker, f"%RETRY%{wire_name}") is None:
            await admin.put_topic(broker, f"%RETRY%{wire_name}", 1)

    async def resolve(self, queue_ref: QueueRef) -> None:
        """Resolve the broker of a queue. Raise TopicMissing if the topic does not exist."""
        route = await self._with_retries(queue_ref.topic, lambda: self._resolve(queue_ref))
        if not route:
            await self.ends(queue_ref.topic)

    async def _resolve(self, queue_ref: QueueRef) -> bool:
        """Resolve the address of a broker. Return whether the topic has a route."""
        route = await self._client.routes.find(self._prefix + queue_ref.topic)
        if queue_ref.broker not in self._client.routes.masters:
            await self._client.routes.brokers()
        return route is not None

    async def pull(self, queue_ref: QueueRef, offset: int, max_messages: int) -> PulledPage:
        """Return consecutive messages from an offset on, or an empty page if they do not exist."""
        left = max_messages

        async def pull() -> PulledPage:
            nonlocal left
            # A broker may be configured to return more than a frame can contain: retry with fewer messages.
            count, left = left, max(left // 4, 1)
            return await self._pull(queue_ref, offset, count)

        return await self._with_retries(queue_ref.topic, pull)

    async def _pull(self, queue_ref: QueueRef, offset: int, max_messages: int) -> PulledPage:
        wire_name = self._prefix + queue_ref.topic
        pauses = iter(READABLE_PAUSES)
        while True:
            pulled, data = await pull_undecoded(
                self._client, queue_ref.broker, wire_name, queue_ref.id, offset, max_messages, group=self._group
            )
            if pulled.status is Status.FOUND:
                return decode_page(data).from_offset(offset)
            pause = next(pauses, None)
            if pause is None or (pulled.status is Status.MOVED and offset < pulled.min_offset):
                return _EMPTY_PAGE
            await asyncio.sleep(pause)

    async def _for_each(
        self, queue_refs: Mapping[QueueRef, object], work: Callable[[QueueRef], Awaitable[_Result]]
    ) -> dict[QueueRef, _Result]:
        found = await asyncio.gather(
            *(self._with_retries(queue_ref.topic, partial(work, queue_ref)) for queue_ref in queue_refs)
        )
        return dict(zip(queue_refs, found, strict=True))

    async def _with_retries(self, topic: str, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Call `work`, and retry transient errors. Raise LogError for other errors and after the last retry."""
        attempt = 0
        while True:
            try:
                return await work()
            except RocketMQError as error:
                if attempt >= self._retries or not is_transient(error):
                    raise to_log_error(error, topic) from error
            pause = min(_MIN_PAUSE * 2**attempt, _MAX_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter between executors
            attempt += 1
            self._client.routes.invalidate(self._prefix + topic)
            with contextlib.suppress(RocketMQError):
                # Refresh the addresses of the brokers.
                await self._client.routes.brokers()
