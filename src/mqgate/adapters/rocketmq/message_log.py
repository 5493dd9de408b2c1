"""The MessageLog port on RocketMQ. A topic has queues on every broker of the cluster; the brokers apply retention."""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mqgate.adapters.rocketmq.appender import Appender
from mqgate.adapters.rocketmq.cluster_probe import ClusterProbe
from mqgate.adapters.rocketmq.column_batch import batch_of, columns_for
from mqgate.adapters.rocketmq.faults import translating
from mqgate.adapters.rocketmq.log_reader import LogReader
from mqgate.adapters.rocketmq.search import Search
from mqgate.adapters.rocketmq.topic_watches import TopicWatches
from mqgate.adapters.rocketmq.topics import Queue, Topic, Topics
from mqgate.core.cursors import invalid_cursor
from mqgate.core.errors import MqgateError, QueueNotFound, StorageUnavailable, TopicNotFound
from mqgate.core.message import Draft, Message, Stored, milliseconds
from mqgate.core.names import OWN_PREFIX
from mqgate.ports.message_log import TopicBounds
from mqgate.rocketmq.admin import LAYOUTS
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.columns import Rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RocketMQMessageLog"]

_CREATION_TIMEOUT = 10.0
# A broker indexes a message shortly after it has confirmed it.
_INDEX_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)
_INDEX_RECENT = 1.0
# Store time in ms, queue and offset of a message.
_CURSOR = re.compile(r"(\d{1,18}) (\S+) (\d{1,18})", re.ASCII)


class RocketMQMessageLog:
    """The message log of one cluster. `wire` adds the namespace to a name. An empty `cluster` means the only cluster.

    `watched` is called for every pull of a watch.
    """

    def __init__(
        self,
        client: RocketMQClient,
        *,
        wire: Callable[[str], str],
        cluster: str = "",
        max_watched_queues: int = 2_000,
        watched: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._wire = wire
        self._cluster = cluster
        self._own_group = wire(f"{OWN_PREFIX}reader")
        self._topics = Topics(client, wire)
        self._appender = Appender(client, self._topics, wire(f"{OWN_PREFIX}producer"))
        self._reader = LogReader(client, self._topics)
        self._search = Search(client, self._own_group)
        self._probe = ClusterProbe(client, self.masters)
        self._watches = TopicWatches(
            client, self._topics, group=self._own_group, max_queues=max_watched_queues, on_request=watched
        )

    async def create(self, topic: str, queues: int) -> None:
        wire = self._wire(topic)
        with translating(topic):
            layout = await self._client.admin.layout(wire)
            masters = await self.masters()
            counts = await asyncio.gather(*(self._create_on(broker, wire, queues) for broker in masters))
            layout |= {broker: max(count, layout.get(broker, 0)) for broker, count in zip(masters, counts, strict=True)}
            text = ";".join(f"{broker}:{count}" for broker, count in sorted(layout.items()))
            await self._client.admin.put_kv(LAYOUTS, wire, text)
            await self._wait_for_route(topic, layout, masters)

    async def _create_on(self, broker: str, wire: str, queues: int) -> int:
        """Create a topic on one broker, or add queues if it has too few. Return how many it has."""
        admin = self._client.admin
        known = await admin.topic(broker, wire)
        if known is None:
            await admin.put_topic(broker, wire, queues)
            return queues
        has = max(known.read_queues, known.write_queues)
        if min(known.read_queues, known.write_queues) < queues:
            await admin.put_topic(broker, wire, max(has, queues), known.perm)
        return max(has, queues)

    async def _wait_for_route(self, topic: str, layout: Mapping[str, int], masters: Sequence[str]) -> None:
        """Wait until the name servers list all queues."""
        deadline = time.monotonic() + _CREATION_TIMEOUT
        while True:
            route = await self._client.routes.find(self._wire(topic), is_fresh=True)
            counts = {broker: max(read, write) for broker, read, write in route.queues} if route else {}
            if all(counts.get(broker, 0) >= layout[broker] for broker in masters) or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        self._topics.update(topic, layout, route)

    async def masters(self) -> list[str]:
        """Return the live brokers of the cluster. Raise StorageUnavailable if there is none."""
        brokers = [broker for broker in await self._client.routes.brokers() if broker.master is not None]
        clusters = {broker.cluster for broker in brokers}
        if not self._cluster and len(clusters) > 1:
            names = ", ".join(sorted(clusters))
            raise StorageUnavailable(f"there are several clusters: set [rocketmq] cluster to one of {names}")
        found = [broker.name for broker in brokers if self._cluster in {"", broker.cluster}]
        if not found:
            raise StorageUnavailable(f"no broker of cluster {self._cluster or '(any)'} is registered", retry_after=1)
        return found

    async def drop(self, topic: str) -> None:
        try:
            known = await self._topics.get_rechecked(topic)
        except TopicNotFound:
            return
        # Brokers delete the topic one by one. Until all have, a concurrent publish gets TopicNotFound from any of them.
        known.is_being_dropped = True
        try:
            with translating(topic):
                await self._client.admin.delete_topic(known.wire, list(known.broker_states))
                await self._client.admin.delete_kv(LAYOUTS, known.wire)
        finally:
            known.is_being_dropped = False
        self._topics.remove(topic)

    def append(
        self, topic: str, drafts: Sequence[Draft], producer: str = ""
    ) -> Coroutine[Any, Any, Sequence[Stored | MqgateError]]:
        known = self._topics.known(topic)
        wire_producer = self._wire(producer) if producer else ""
        if known is None:
            return self._load_and_append(topic, drafts, wire_producer)
        return self._appender.append(known, drafts, wire_producer)

    async def _load_and_append(
        self, topic: str, drafts: Sequence[Draft], wire_producer: str
    ) -> Sequence[Stored | MqgateError]:
        return await self._appender.append(await self._topics.get(topic), drafts, wire_producer)

    def read(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, group: str = ""
    ) -> Coroutine[Any, Any, Sequence[Message]]:
        wire_group = self._wire(group) if group else self._own_group
        known = self._topics.known(topic)
        found = None if known is None else known.queues.get(queue)
        if known is None or found is None:
            return self._load_and_read(topic, queue, offset, max_count, max_bytes, wire_group)
        return self._reader.read(known, found, offset, max_count, max_bytes, wire_group)

    async def _load_and_read(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, wire_group: str
    ) -> Sequence[Message]:
        known, found = await self._load_queue(topic, queue)
        return await self._reader.read(known, found, offset, max_count, max_bytes, wire_group)

    async def read_columns(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, names: Sequence[str]
    ) -> "pa.RecordBatch":
        known, found = await self._load_queue(topic, queue)
        rows = Rows(columns_for(names))
        await self._reader.read_columns(known, found, offset, max_count, max_bytes, self._own_group, rows)
        return await asyncio.to_thread(batch_of, rows, names, topic, queue)

    async def _load_queue(self, topic: str, queue: str) -> tuple[Topic, Queue]:
        # The name of the queue may come from another gateway, which has just created the topic.
        known = await self._topics.get_rechecked(topic)
        found = known.queues.get(queue)
        if found is None:
            await self._topics.ensure_fresh(known)
            found = known.queues.get(queue)
        if found is None:
            raise QueueNotFound(f"topic {topic} has no queue {queue}", queue=queue)
        return known, found

    async def bounds(self, topic: str, since: int = 0) -> TopicBounds:
        topics = self._topics
        known = topics.known(topic) or await topics.get(topic)
        if stale := topics.pending_refreshes(known):
            await topics.wait_for_refreshes(known, stale)
        return self._bounds_since(known, since)

    async def current_bounds(self, topic: str, *, is_complete: bool = True) -> TopicBounds:
        known = await self._topics.get_rechecked(topic)
        await (self._topics.refresh_after_indexing(known) if is_complete else self._topics.refresh_bounds(known))
        return self._bounds_since(known, 0)

    def _bounds_since(self, known: Topic, since: int) -> TopicBounds:
        topics = self._topics
        changed = topics.changed_since(known, since)
        if not changed:
            return TopicBounds(topics.version, {}, known.closed, is_growth=True)
        bounds = {queue.name: queue.bounds for queue in changed if queue.bounds is not None}
        boots = {queue.name: queue.boot for queue in changed if queue.boot is not None}
        last_append_ms = {queue.name: queue.last_append_ms for queue in changed if queue.last_append_ms}
        is_growth = since > 0 and all(queue.reset_version <= since for queue in changed)
        return TopicBounds(topics.version, bounds, known.closed, boots, last_append_ms, is_growth)

    def is_known_missing(self, topic: str) -> bool:
        return self._topics.is_known_missing(topic)

    async def offsets_at(self, topic: str, instant: datetime) -> Mapping[str, int]:
        known = await self._topics.get(topic)
        await self._topics.ensure_fresh(known)
        queues = [queue for queue in known.queues.values() if not queue.is_closed]
        at = max(milliseconds(instant), 0)
        search = self._client.offsets.at
        with translating(topic):
            offsets = await asyncio.gather(*(search(queue.broker, known.wire, queue.id, at) for queue in queues))
        return {queue.name: offset for queue, offset in zip(queues, offsets, strict=True)}

    def invalidate_topic(self, topic: str) -> None:
        """Drop what is cached of a topic that another gateway may have changed."""
        self._topics.invalidate_topic(topic)

    def watch(self, topic: str, arrived: Callable[[str, int], None]) -> Callable[[], None]:
        return self._watches.watch(topic, arrived)

    async def find(self, topic: str, message_id: str) -> Message | None:
        known = await self._topics.get(topic)
        await self._topics.ensure_fresh(known)
        with translating(topic):
            found = await self._search.by_id(known, message_id)
            for pause in _INDEX_PAUSES:
                if found is not None or time.monotonic() > known.appended_at + _INDEX_RECENT:
                    break
                await asyncio.sleep(pause)
                found = await self._search.by_id(known, message_id)
        return found

    async def find_by_key(
        self, topic: str, key: str | None, *, since: datetime, until: datetime, limit: int, after: str | None
    ) -> tuple[Sequence[Message], str | None]:
        known = await self._topics.get(topic)
        await self._topics.ensure_fresh(known)
        low, high = max(milliseconds(since), 0), milliseconds(until)
        cursor = None if after is None else _parse_cursor(known, after)
        found: list[Message] = []
        with translating(topic):
            if key is not None:
                found = _after(await self._search.by_key(known, key, low, high), cursor)
            else:
                async for message in self._search.between(known, low, high, cursor and cursor[1:]):
                    found.append(message)
                    if len(found) > limit:
                        break
        return found[:limit], _cursor(found[limit - 1]) if len(found) > limit else None

    async def probe(self) -> Mapping[str, str]:
        """Return the state of each server. Raise StorageUnavailable if no broker responds."""
        return await self._probe.states(self._topics.brokers())

    async def close(self) -> None:
        await self._watches.close()
        await self._reader.close()
        await self._topics.close()
        await self._client.close()


def _cursor(message: Message) -> str:
    return f"{message.stored_ms} {message.queue} {message.offset}"


def _parse_cursor(topic: Topic, cursor: str) -> tuple[int, str, int]:
    found = _CURSOR.fullmatch(cursor)
    if found is None or found[2] not in topic.queues:
        raise invalid_cursor()
    return int(found[1]), found[2], int(found[3])


def _after(messages: list[Message], cursor: tuple[int, str, int] | None) -> list[Message]:
    """Return the messages after the cursor. The message of the cursor itself may have expired."""
    if cursor is None:
        return messages
    return [message for message in messages if (message.stored_ms, message.queue, message.offset) > cursor]
