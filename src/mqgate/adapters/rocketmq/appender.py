"""Appends messages to RocketMQ: chooses the queue, forms batches, and returns one outcome per message.

The queue of a key is fixed: if it is unavailable, the message is refused. The messages of one call without a key are
sent together to the next writable queue. If its broker certainly did not store them, another broker is tried.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from mqgate.adapters.rocketmq.faults import may_try_other_broker, translated
from mqgate.adapters.rocketmq.topics import Queue, Topic, Topics
from mqgate.adapters.rocketmq.translate import properties_of
from mqgate.core.errors import MqgateError, QueueUnavailable, StorageUnavailable, TopicNotFound
from mqgate.core.message import Draft, Stored, instant
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import NoResponse, NotSent, RocketMQError
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
            # Most publishes are one message, which needs no parts.
            slot = drafts[0][5]
            return self._send(topic, None if slot is None else topic.slots[slot % len(topic.slots)], drafts, producer)
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
        if isinstance(outcomes[0], TopicNotFound) and all(isinstance(outcome, TopicNotFound) for outcome in outcomes):
            raise outcomes[0]
        return outcomes

    async def _send_part(
        self, topic: Topic, target: Queue | int, drafts: Sequence[Draft], indexes: Sequence[int], producer: str
    ) -> list[PublishOutcome]:
        """Append messages in order: to one queue, where the first failure ends it, or to any queues."""
        part = [drafts[index] for index in indexes]
        fixed = target if isinstance(target, Queue) else None
        outcomes: list[PublishOutcome] = []
        for batch in _batches(part):
            if fixed is not None and outcomes and isinstance(outcomes[-1], MqgateError):
                outcomes += [outcomes[-1]] * len(batch)
                continue
            try:
                outcomes += await self._send(topic, fixed, batch, producer)
            except TopicNotFound as error:
                outcomes += [error] * len(batch)
        return outcomes

    async def _send(
        self, topic: Topic, fixed: Queue | None, batch: Sequence[Draft], producer: str
    ) -> list[PublishOutcome]:
        """Append one batch to a fixed queue, or to the next queue whose broker accepts it.

        A busy broker has certainly not stored the batch, so the send is repeated there first. Raise TopicNotFound if no
        broker has the topic.
        """
        messages = self._client.messages
        producer_group = producer or self._producer
        count = len(batch)
        failure: MqgateError | None = None
        tried: tuple[str, ...] = ()
        busy = 0
        queue = self._choose(topic, fixed, tried)
        if queue is None:
            await self._topics.refresh_now(topic, None if fixed is None else fixed.broker)
            queue = self._choose(topic, fixed, tried)
        while queue is not None:
            sent_ms = time.time_ns() // 1_000_000
            try:
                if count == 1:
                    draft = batch[0]
                    first, _, is_degraded = await messages.send(
                        queue.broker, topic.wire, queue.id, draft[1], _properties(draft), producer=producer_group
                    )
                else:
                    pairs = [(draft.body, _properties(draft)) for draft in batch]
                    first, _, is_degraded = await messages.send_batch(
                        queue.broker, topic.wire, queue.id, pairs, producer=producer_group
                    )
            except RocketMQError as error:
                if kind_of(error) is FaultKind.BUSY and busy < len(_BUSY_PAUSES):
                    await asyncio.sleep(_BUSY_PAUSES[busy])
                    busy += 1
                    continue
                failure = await self._failure(topic, queue, error)
                if isinstance(failure, TopicNotFound):
                    raise failure from error
                if fixed is not None or not may_try_other_broker(error):
                    break
                tried, busy = (*tried, queue.broker), 0
                queue = self._choose(topic, fixed, tried)
                continue
            # The broker does not return its store time. It is not before `sent_ms`, so a search or a seek by the
            # reported time finds the message.
            if sent_ms != self._now_ms:
                self._now_ms, self._now = sent_ms, instant(sent_ms)
            name, stored_at = queue.name, self._now
            self._topics.confirm_append(topic, queue, first + count)
            # tuple.__new__ is faster than the constructor, and a batch may have a hundred messages.
            return [
                tuple.__new__(Stored, (name, offset, stored_at, is_degraded)) for offset in range(first, first + count)
            ]
        if fixed is not None and (failure is None or isinstance(failure, StorageUnavailable)):
            failure = _unavailable(fixed)
        return [failure or _no_broker(topic)] * count

    def _choose(self, topic: Topic, fixed: Queue | None, tried: Sequence[str]) -> Queue | None:
        """Return the fixed queue, or the next one in rotation, if it is writable and its broker is up and not tried.

        Raise TopicNotFound if the topic is being dropped. That may have started after the append was called.
        """
        if topic.is_being_dropped:
            raise TopicNotFound(f"topic {topic.name} is being deleted", topic=topic.name)
        is_down = self._client.brokers.is_down
        if fixed is not None:
            return fixed if fixed.can_write and not is_down(fixed.broker) else None
        slots = topic.slots
        for _ in slots:
            topic.next_slot += 1
            queue = slots[topic.next_slot % len(slots)]
            if queue.can_write and queue.broker not in tried and not is_down(queue.broker):
                return queue
        return None

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
