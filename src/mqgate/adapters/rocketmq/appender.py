"""Appends messages to RocketMQ: chooses the queue, forms batches, and returns one outcome per message.

The queue of a key is fixed: if it is unavailable, the message is refused. The messages of one call without a key are
sent together to the next writable queue. If its broker certainly did not store them, another broker is tried.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from datetime import datetime
from typing import Any

from mqgate.adapters.rocketmq.faults import may_try_other_broker, translated
from mqgate.adapters.rocketmq.topics import Queue, Topic, Topics
from mqgate.adapters.rocketmq.translate import properties_of
from mqgate.core.errors import MqgateError, QueueUnavailable, StorageUnavailable, TopicNotFound
from mqgate.core.message import Draft, Stored, instant
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import NoResponse, NotSent, Refused, RocketMQError
from mqgate.rocketmq.faults import FaultKind, kind_of
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.user_properties import ID

__all__ = ["Appender"]

PublishOutcome = Stored | MqgateError
# A broker accepts 4 MiB per request, including its own overhead. A single message may be larger than this limit.
_MAX_BATCH_BYTES = 3 << 20
_MAX_BATCH_COUNT = 128
_ENTRY_OVERHEAD = 128
_BUSY_PAUSES = (0.05, 0.2)


class Appender:
    def __init__(self, client: RocketMQClient, topics: Topics, producer: str) -> None:
        self._client = client
        self._topics = topics
        self._producer = producer
        self._now_ms = 0
        self._now = instant(0)

    def append(self, topic: Topic, drafts: Sequence[Draft], producer: str) -> Coroutine[Any, Any, list[PublishOutcome]]:
        """Append messages and return one outcome per message."""
        self._topics.refresh_if_due(topic)
        if len(drafts) == 1:
            # The fast path for the most common publish.
            slot = drafts[0].slot
            if slot is None:
                return self._send_batch_anywhere(topic, drafts, producer)
            return self._send_to(topic, topic.slots[slot % len(topic.slots)], drafts, producer)
        return self._append(topic, drafts, producer)

    async def _append(self, topic: Topic, drafts: Sequence[Draft], producer: str) -> list[PublishOutcome]:
        outcomes: list[PublishOutcome] = [StorageUnavailable("not sent")] * len(drafts)
        parts: dict[Queue | int, list[int]] = {}
        keyless = 0
        for index, draft in enumerate(drafts):
            if draft.slot is None:
                parts.setdefault(keyless // _MAX_BATCH_COUNT, []).append(index)
                keyless += 1
            else:
                parts.setdefault(topic.slots[draft.slot % len(topic.slots)], []).append(index)
        sends = [self._send_part(topic, target, drafts, indexes, producer) for target, indexes in parts.items()]
        done = [await sends[0]] if len(sends) == 1 else await asyncio.gather(*sends)
        for indexes, part in zip(parts.values(), done, strict=True):
            for index, outcome in zip(indexes, part, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def _send_part(
        self, topic: Topic, target: Queue | int, drafts: Sequence[Draft], indexes: Sequence[int], producer: str
    ) -> list[PublishOutcome]:
        part = [drafts[index] for index in indexes]
        if isinstance(target, Queue):
            return await self._send_to(topic, target, part, producer)
        return await self._send_anywhere(topic, part, producer)

    async def _send_to(
        self, topic: Topic, queue: Queue, drafts: Sequence[Draft], producer: str
    ) -> list[PublishOutcome]:
        """Append to one queue in order. The first failure ends it."""
        if not queue.can_write or self._client.brokers.is_down(queue.broker):
            await self._topics.refresh_now(topic, queue.broker)
            if not queue.can_write or self._client.brokers.is_down(queue.broker):
                return [_unavailable(queue)] * len(drafts)
        outcomes: list[PublishOutcome] = []
        for batch in (drafts,) if len(drafts) == 1 else _batches(drafts):
            try:
                outcomes += await self._send(topic, queue, batch, producer)
            except RocketMQError as error:
                failure = await self._failure(topic, queue, error)
                is_unavailable = isinstance(failure, StorageUnavailable)
                outcomes += [_unavailable(queue) if is_unavailable else failure] * (len(drafts) - len(outcomes))
                break
        return outcomes

    async def _send_anywhere(self, topic: Topic, drafts: Sequence[Draft], producer: str) -> list[PublishOutcome]:
        """Append to the next queues that accept the messages."""
        outcomes: list[PublishOutcome] = []
        for batch in _batches(drafts):
            outcomes += await self._send_batch_anywhere(topic, batch, producer)
        return outcomes

    async def _send_batch_anywhere(self, topic: Topic, batch: Sequence[Draft], producer: str) -> list[PublishOutcome]:
        failure: MqgateError | None = None
        tried: tuple[str, ...] = ()
        while True:
            queue = self._next(topic, tried)
            if queue is None:
                if failure is None and not tried:
                    await self._topics.refresh_now(topic, None)
                    queue = self._next(topic, tried)
                if queue is None:
                    return [failure or _no_broker(topic)] * len(batch)
            tried = (*tried, queue.broker)
            try:
                return await self._send(topic, queue, batch, producer)
            except RocketMQError as error:
                failure = await self._failure(topic, queue, error)
                if isinstance(failure, TopicNotFound) or not may_try_other_broker(error):
                    return [failure] * len(batch)

    def _next(self, topic: Topic, tried: Sequence[str]) -> Queue | None:
        """Return the next writable queue, in rotation, of a live broker that was not tried."""
        slots = topic.slots
        for _ in slots:
            topic.next_slot += 1
            queue = slots[topic.next_slot % len(slots)]
            if queue.can_write and queue.broker not in tried and not self._client.brokers.is_down(queue.broker):
                return queue
        return None

    async def _send(self, topic: Topic, queue: Queue, batch: Sequence[Draft], producer: str) -> list[PublishOutcome]:
        """Append to one queue. A busy broker has certainly not stored the batch, so the send is repeated."""
        messages = self._client.messages
        producer_group = producer or self._producer
        count = len(batch)
        pauses = iter(_BUSY_PAUSES)
        while True:
            sent_ms = time.time_ns() // 1_000_000
            try:
                if count == 1:
                    draft = batch[0]
                    first, _, is_degraded = await messages.send(
                        queue.broker, topic.wire, queue.id, draft.body, _properties(draft), producer=producer_group
                    )
                else:
                    pairs = [(draft.body, _properties(draft)) for draft in batch]
                    first, _, is_degraded = await messages.send_batch(
                        queue.broker, topic.wire, queue.id, pairs, producer=producer_group
                    )
                break
            except Refused as error:
                pause = next(pauses, None) if kind_of(error) is FaultKind.BUSY else None
                if pause is None:
                    raise
            await asyncio.sleep(pause)
        # The broker does not return its store time. It is not before `sent_ms`, so a search or a seek by the reported
        # time finds the message.
        stored_at = self._instant(sent_ms)
        self._topics.confirm_append(topic, queue, first + count)
        name = queue.name
        # tuple.__new__ is faster than the constructor, and a batch may have a hundred messages.
        return [tuple.__new__(Stored, (name, offset, stored_at, is_degraded)) for offset in range(first, first + count)]

    def _instant(self, now_ms: int) -> datetime:
        """Return the instant; all calls within one millisecond share one object."""
        if now_ms != self._now_ms:
            self._now_ms, self._now = now_ms, instant(now_ms)
        return self._now

    async def _failure(self, topic: Topic, queue: Queue, error: RocketMQError) -> MqgateError:
        if isinstance(error, NotSent | NoResponse):
            self._topics.close_queues(topic, queue.broker)
        failure = translated(error, topic.name, is_send=True)
        if isinstance(failure, TopicNotFound) and not await self._topics.is_deleted(topic):
            self._topics.stop_writes(topic, queue.broker)
            return StorageUnavailable(f"broker {queue.broker} does not have the topic: {failure.detail}", retry_after=1)
        return failure


def _properties(draft: Draft) -> str:
    """Return the property text of a message."""
    message_id, _, key, tag, properties, _ = draft
    if key is None and tag is None and not properties and message_id.isalnum():
        # The fast path for most messages: only an id, which needs no check.
        return f"{ID}\x01{message_id}\x02"
    return property_text.encode(properties_of(draft))


def _batches(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    """Split messages into batches that a broker accepts."""
    start, size = 0, 0
    for index, draft in enumerate(drafts):
        draft_size = len(draft.body) + _ENTRY_OVERHEAD
        if draft.properties:
            draft_size += sum([len(name) + len(value) for name, value in draft.properties.items()]) * 3
        if index > start and size + draft_size > _MAX_BATCH_BYTES:
            yield drafts[start:index]
            start, size = index, 0
        size += draft_size
    yield drafts[start:]


def _unavailable(queue: Queue) -> QueueUnavailable:
    return QueueUnavailable(
        f"queue {queue.name} cannot be written now: its broker is down or read-only", queue=queue.name, retry_after=1
    )


def _no_broker(topic: Topic) -> StorageUnavailable:
    return StorageUnavailable(f"no broker accepts messages for topic {topic.name} now", retry_after=1)
