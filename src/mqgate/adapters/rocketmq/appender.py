"""How messages get into RocketMQ: which queue, in which batches, and what became of each.

A key's queue is fixed: if it is down, the message is refused. Messages without a key go, those of one call together,
to the next queue that is up and may be written; if its broker certainly did not store them, to another broker's.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from datetime import datetime
from typing import Any

from mqgate.adapters.rocketmq.faults import is_elsewhere_worth_a_try, translated
from mqgate.adapters.rocketmq.topics import Queue, Topic, Topics
from mqgate.adapters.rocketmq.translate import properties_of
from mqgate.core.errors import MqgateError, QueueUnavailable, StorageUnavailable, TopicNotFound
from mqgate.core.message import Draft, Stored, instant
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import NoResponse, NotSent, Refused, RocketMQError
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.remoting.codes import ResponseCode

__all__ = ["Appender"]

PublishOutcome = Stored | MqgateError
# A broker takes 4 MiB at once, its own overhead included; one message alone may be as large.
_MOST_BATCH_BYTES = 3 << 20
_MOST_TOGETHER = 128
_ENTRY_OVERHEAD = 128
_BUSY_PAUSES = (0.05, 0.2)
_IS_BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})


class Appender:
    def __init__(self, client: RocketMQClient, topics: Topics, producer: str) -> None:
        self._client = client
        self._topics = topics
        self._producer = producer
        self._now_ms = 0
        self._now = instant(0)

    def append(self, topic: Topic, drafts: Sequence[Draft], producer: str) -> Coroutine[Any, Any, list[PublishOutcome]]:
        """Store messages; an outcome each."""
        self._topics.keep_up(topic)
        if len(drafts) == 1:
            # What most publishes are.
            slot = drafts[0].slot
            if slot is None:
                return self._send_batch_anywhere(topic, drafts, producer)
            return self._send_to(topic, topic.slots[slot % len(topic.slots)], drafts, producer)
        return self._append(topic, drafts, producer)

    async def _append(self, topic: Topic, drafts: Sequence[Draft], producer: str) -> list[PublishOutcome]:
        outcomes: list[PublishOutcome] = [StorageUnavailable("not sent")] * len(drafts)
        parts: dict[Queue | int, list[int]] = {}
        loose = 0
        for index, draft in enumerate(drafts):
            if draft.slot is None:
                parts.setdefault(loose // _MOST_TOGETHER, []).append(index)
                loose += 1
            else:
                parts.setdefault(topic.slots[draft.slot % len(topic.slots)], []).append(index)
        sends = [self._send_part(topic, place, drafts, indexes, producer) for place, indexes in parts.items()]
        done = [await sends[0]] if len(sends) == 1 else await asyncio.gather(*sends)
        for indexes, part in zip(parts.values(), done, strict=True):
            for index, outcome in zip(indexes, part, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def _send_part(
        self, topic: Topic, place: Queue | int, drafts: Sequence[Draft], indexes: Sequence[int], producer: str
    ) -> list[PublishOutcome]:
        some = [drafts[index] for index in indexes]
        if isinstance(place, Queue):
            return await self._send_to(topic, place, some, producer)
        return await self._send_anywhere(topic, some, producer)

    async def _send_to(
        self, topic: Topic, queue: Queue, drafts: Sequence[Draft], producer: str
    ) -> list[PublishOutcome]:
        """Store at one queue, in order; behind what fails nothing more is tried."""
        if not queue.can_write or self._client.brokers.is_down(queue.broker):
            await self._topics.look_again(topic, queue.broker)
            if not queue.can_write or self._client.brokers.is_down(queue.broker):
                return [_unavailable(queue)] * len(drafts)
        outcomes: list[PublishOutcome] = []
        for batch in (drafts,) if len(drafts) == 1 else _batches(drafts):
            try:
                outcomes += await self._send(topic, queue, batch, producer)
            except RocketMQError as error:
                failure = await self._failure(topic, queue, error)
                is_gone = isinstance(failure, StorageUnavailable)
                outcomes += [_unavailable(queue) if is_gone else failure] * (len(drafts) - len(outcomes))
                break
        return outcomes

    async def _send_anywhere(self, topic: Topic, drafts: Sequence[Draft], producer: str) -> list[PublishOutcome]:
        """Store at the next queue that takes it."""
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
                    await self._topics.look_again(topic, None)
                    queue = self._next(topic, tried)
                if queue is None:
                    return [failure or _nowhere(topic)] * len(batch)
            tried = (*tried, queue.broker)
            try:
                return await self._send(topic, queue, batch, producer)
            except RocketMQError as error:
                failure = await self._failure(topic, queue, error)
                if isinstance(failure, TopicNotFound) or not is_elsewhere_worth_a_try(error):
                    return [failure] * len(batch)

    def _next(self, topic: Topic, tried: Sequence[str]) -> Queue | None:
        """The next queue in turn of a broker that is up and was not tried."""
        slots = topic.slots
        for _ in slots:
            topic.turn += 1
            queue = slots[topic.turn % len(slots)]
            if queue.can_write and queue.broker not in tried and not self._client.brokers.is_down(queue.broker):
                return queue
        return None

    async def _send(self, topic: Topic, queue: Queue, batch: Sequence[Draft], producer: str) -> list[PublishOutcome]:
        """Store at one queue; a broker that is busy has certainly not stored it, and is asked again a little later."""
        messages = self._client.messages
        by = producer or self._producer
        count = len(batch)
        pauses = iter(_BUSY_PAUSES)
        while True:
            sent_ms = time.time_ns() // 1_000_000
            try:
                if count == 1:
                    draft = batch[0]
                    first, _, is_degraded = await messages.send(
                        queue.broker, topic.wire, queue.id, draft.body, _properties(draft), producer=by
                    )
                else:
                    pairs = [(draft.body, _properties(draft)) for draft in batch]
                    first, _, is_degraded = await messages.send_batch(
                        queue.broker, topic.wire, queue.id, pairs, producer=by
                    )
                break
            except Refused as error:
                pause = next(pauses, None) if error.code in _IS_BUSY else None
                if pause is None:
                    raise
            await asyncio.sleep(pause)
        # Which instant the broker wrote down it does not say. It is none before this one: who looks for the message, or
        # seeks to it, by what we answer must not miss it.
        stored_at = self._instant(sent_ms)
        self._topics.confirmed(topic, queue, first + count)
        name = queue.name
        # Not by their fields' names: a batch makes a hundred.
        return [tuple.__new__(Stored, (name, offset, stored_at, is_degraded)) for offset in range(first, first + count)]

    def _instant(self, now_ms: int) -> datetime:
        """What is stored within the same millisecond shares one object."""
        if now_ms != self._now_ms:
            self._now_ms, self._now = now_ms, instant(now_ms)
        return self._now

    async def _failure(self, topic: Topic, queue: Queue, error: RocketMQError) -> MqgateError:
        if isinstance(error, NotSent | NoResponse):
            self._topics.shut(topic, queue.broker)
        failure = translated(error, topic.name, is_send=True)
        if isinstance(failure, TopicNotFound) and not await self._topics.is_gone(topic):
            self._topics.bar(topic, queue.broker)
            return StorageUnavailable(f"broker {queue.broker} lacks the topic: {failure.detail}", retry_after=1)
        return failure


def _properties(draft: Draft) -> str:
    """The text of a message's properties."""
    message_id, _, key, tag, properties, _ = draft
    if key is None and tag is None and not properties and message_id.isalnum():
        # What most messages have: an id, in which nothing can be that the text cannot carry.
        return f"UNIQ_KEY\x01{message_id}\x02"
    return property_text.encode(properties_of(draft))


def _batches(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    """Pieces that a broker takes at once; a large message goes alone."""
    start, size = 0, 0
    for index, draft in enumerate(drafts):
        own = len(draft.body) + _ENTRY_OVERHEAD
        if draft.properties:
            own += sum([len(name) + len(value) for name, value in draft.properties.items()]) * 3
        if index > start and size + own > _MOST_BATCH_BYTES:
            yield drafts[start:index]
            start, size = index, 0
        size += own
    yield drafts[start:]


def _unavailable(queue: Queue) -> QueueUnavailable:
    return QueueUnavailable(
        f"queue {queue.name} takes no messages now: its broker is down or read-only", queue=queue.name, retry_after=1
    )


def _nowhere(topic: Topic) -> StorageUnavailable:
    return StorageUnavailable(f"no broker takes messages for topic {topic.name} now", retry_after=1)
