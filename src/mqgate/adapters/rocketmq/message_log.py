"""The log on RocketMQ: topics on every broker of a cluster, dense offsets per queue, retention the brokers' own."""

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

_CREATION_PATIENCE = 10.0
# A broker's index knows a message a moment after the broker has confirmed it.
_INDEX_SOON = (0.02, 0.05, 0.1, 0.2, 0.4)
_INDEX_RECENT = 1.0
# When a message was stored, its queue and offset.
_CURSOR = re.compile(r"(\d{1,18}) (\S+) (\d{1,18})", re.ASCII)


class RocketMQMessageLog:
    """MessageLog on a cluster. `wire` makes RocketMQ's names of ours; `cluster` "" stands for the only one."""

    def __init__(
        self,
        client: RocketMQClient,
        *,
        wire: Callable[[str], str],
        cluster: str = "",
        most_watched: int = 2_000,
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
        self._health = ClusterProbe(client, self.masters)
        self._watches = TopicWatches(
            client, self._topics, group=self._own_group, max_queues=most_watched, on_request=watched
        )

    async def create(self, topic: str, queues: int) -> None:
        wire = self._wire(topic)
        with translating(topic):
            layout = await self._client.admin.layout(wire)
            masters = await self.masters()
            counts = await asyncio.gather(*(self._make(broker, wire, queues) for broker in masters))
            layout |= {broker: max(count, layout.get(broker, 0)) for broker, count in zip(masters, counts, strict=True)}
            text = ";".join(f"{broker}:{count}" for broker, count in sorted(layout.items()))
            await self._client.admin.put_kv(LAYOUTS, wire, text)
            await self._routed(topic, layout, masters)

    async def _make(self, broker: str, wire: str, queues: int) -> int:
        """Make a topic on one broker, or leave it as it is if it has enough queues; how many it has."""
        admin = self._client.admin
        known = await admin.topic(broker, wire)
        if known is None:
            await admin.put_topic(broker, wire, queues)
            return queues
        has = max(known.read_queues, known.write_queues)
        if min(known.read_queues, known.write_queues) < queues:
            await admin.put_topic(broker, wire, max(has, queues), known.perm)
        return max(has, queues)

    async def _routed(self, topic: str, layout: Mapping[str, int], masters: Sequence[str]) -> None:
        """Wait until the name servers tell of all queues."""
        deadline = time.monotonic() + _CREATION_PATIENCE
        while True:
            route = await self._client.routes.find(self._wire(topic), is_fresh=True)
            counts = {each.broker: max(each.read, each.write) for each in route.queues} if route else {}
            if all(counts.get(broker, 0) >= layout[broker] for broker in masters) or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        self._topics.update(topic, layout, route)

    async def masters(self) -> list[str]:
        """The brokers of our cluster that live; StorageUnavailable if there is none."""
        brokers = [each for each in await self._client.routes.brokers() if each.master is not None]
        clusters = {each.cluster for each in brokers}
        if not self._cluster and len(clusters) > 1:
            raise StorageUnavailable(f"say which cluster: [rocketmq] cluster is one of {', '.join(sorted(clusters))}")
        found = [each.name for each in brokers if self._cluster in {"", each.cluster}]
        if not found:
            raise StorageUnavailable(f"no broker of cluster {self._cluster or '(any)'} is registered", retry_after=1)
        return found

    async def drop(self, topic: str) -> None:
        try:
            known = await self._topics.get_rechecked(topic)
        except TopicNotFound:
            return
        # Until the last broker has dropped it the others' answers say nothing to those who publish meanwhile.
        known.is_being_dropped = True
        try:
            with translating(topic):
                await self._client.admin.delete_topic(known.wire, list(known.broker_states))
                await self._client.admin.delete_kv(LAYOUTS, known.wire)
        finally:
            known.is_being_dropped = False
        self._topics.remove(topic)

    async def append(self, topic: str, drafts: Sequence[Draft], producer: str = "") -> Sequence[Stored | MqgateError]:
        known = self._topics.known(topic) or await self._topics.get(topic)
        if known.is_being_dropped:
            raise TopicNotFound(f"topic {topic} is being deleted", topic=topic)
        outcomes = await self._appender.append(known, drafts, self._wire(producer) if producer else "")
        if outcomes and isinstance(outcomes[0], TopicNotFound):
            gone = [outcome for outcome in outcomes if isinstance(outcome, TopicNotFound)]
            if len(gone) == len(outcomes):
                raise gone[0]
        return outcomes

    def read(
        self, topic: str, queue: str, offset: int, most: int, most_bytes: int, group: str = ""
    ) -> Coroutine[Any, Any, Sequence[Message]]:
        by = self._wire(group) if group else self._own_group
        known = self._topics.known(topic)
        place = None if known is None else known.queues.get(queue)
        if known is None or place is None:
            return self._read_unmet(topic, queue, offset, most, most_bytes, by)
        return self._reader.read(known, place, offset, most, most_bytes, by)

    async def _read_unmet(
        self, topic: str, queue: str, offset: int, most: int, most_bytes: int, by: str
    ) -> Sequence[Message]:
        known, place = await self._place(topic, queue)
        return await self._reader.read(known, place, offset, most, most_bytes, by)

    async def read_columns(
        self, topic: str, queue: str, offset: int, most: int, most_bytes: int, names: Sequence[str]
    ) -> "pa.RecordBatch":
        known, place = await self._place(topic, queue)
        rows = Rows(columns_for(names))
        await self._reader.gather(known, place, offset, most, most_bytes, self._own_group, rows)
        return await asyncio.to_thread(batch_of, rows, names, topic, queue)

    async def _place(self, topic: str, queue: str) -> tuple[Topic, Queue]:
        # Who names a queue has heard of it, maybe from another gateway that made the topic.
        known = await self._topics.get_rechecked(topic)
        place = known.queues.get(queue)
        if place is None:
            await self._topics.ensure_fresh(known)
            place = known.queues.get(queue)
        if place is None:
            raise QueueNotFound(f"topic {topic} has no queue {queue}", queue=queue)
        return known, place

    async def bounds(self, topic: str, since: int = 0) -> TopicBounds:
        topics = self._topics
        known = topics.known(topic) or await topics.get(topic)
        if stale := topics.pending_refreshes(known):
            await topics.wait_for_refreshes(known, stale)
        return self._told(known, since)

    async def current_bounds(self, topic: str, *, is_complete: bool = True) -> TopicBounds:
        known = await self._topics.get_rechecked(topic)
        await (self._topics.refresh_after_indexing(known) if is_complete else self._topics.refresh_bounds(known))
        return self._told(known, 0)

    def _told(self, known: Topic, since: int) -> TopicBounds:
        topics = self._topics
        changed = topics.changed_since(known, since)
        if not changed:
            return TopicBounds(topics.version, {}, known.closed)
        bounds = {queue.name: queue.bounds for queue in changed if queue.bounds is not None}
        boots = {queue.name: queue.boot for queue in changed if queue.boot is not None}
        last_append_ms = {queue.name: queue.last_append_ms for queue in changed if queue.last_append_ms}
        return TopicBounds(topics.version, bounds, known.closed, boots, last_append_ms)

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
        """Another gateway may have changed a topic: what is known of it is asked for again."""
        self._topics.invalidate_topic(topic)

    def watch(self, topic: str, arrived: Callable[[str, int], None]) -> Callable[[], None]:
        return self._watches.watch(topic, arrived)

    async def find(self, topic: str, message_id: str) -> Message | None:
        known = await self._topics.get(topic)
        await self._topics.ensure_fresh(known)
        with translating(topic):
            found = await self._search.by_id(known, message_id)
            for pause in _INDEX_SOON:
                if found is not None or time.monotonic() > known.appended_at + _INDEX_RECENT:
                    break
                await asyncio.sleep(pause)
                found = await self._search.by_id(known, message_id)
        return found

    async def find_by_key(
        self, topic: str, key: str | None, *, since: datetime, until: datetime, most: int, after: str | None
    ) -> tuple[Sequence[Message], str | None]:
        known = await self._topics.get(topic)
        await self._topics.ensure_fresh(known)
        low, high = max(milliseconds(since), 0), milliseconds(until)
        place = None if after is None else _place_of(known, after)
        found: list[Message] = []
        with translating(topic):
            if key is not None:
                found = _behind(await self._search.by_key(known, key, low, high), place)
            else:
                async for message in self._search.between(known, low, high, place and place[1:]):
                    found.append(message)
                    if len(found) > most:
                        break
        return found[:most], _cursor(found[most - 1]) if len(found) > most else None

    async def probe(self) -> Mapping[str, str]:
        """Each server, and whether it answers; StorageUnavailable if nothing could be stored."""
        return await self._health.states(self._topics.brokers())

    async def close(self) -> None:
        await self._watches.close()
        await self._reader.close()
        await self._topics.close()
        await self._client.close()


def _cursor(message: Message) -> str:
    return f"{message.stored_ms} {message.queue} {message.offset}"


def _place_of(topic: Topic, cursor: str) -> tuple[int, str, int]:
    found = _CURSOR.fullmatch(cursor)
    if found is None or found[2] not in topic.queues:
        raise invalid_cursor()
    return int(found[1]), found[2], int(found[3])


def _behind(messages: list[Message], place: tuple[int, str, int] | None) -> list[Message]:
    """What follows the message that a cursor names; it may have been expired meanwhile."""
    if place is None:
        return messages
    return [each for each in messages if (each.stored_ms, each.queue, each.offset) > place]
