"""Finds messages by id, by key and by time.

The index of a broker holds ids and keys by hash and by second, and returns at most 64 messages. The results are
therefore checked. A time range that may hold more is divided until it does not, or is read message by message. The
index also returns messages of a deleted topic of the same name: those precede the first message of the queue in the
commit log.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from mqgate.adapters.rocketmq.topics import Queue, Topic
from mqgate.adapters.rocketmq.translate import message_of
from mqgate.core.message import Message
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.messages import Status
from mqgate.rocketmq.puller import pull
from mqgate.rocketmq.remoting.record import Record

__all__ = ["Search"]

_MAX_INDEXED = 64
_MIN_RANGE_MS = 4_000
_INDEX_BLUR_MS = 2_000
_PAGE = 32


class Search:
    def __init__(self, client: RocketMQClient, group: str) -> None:
        self._client = client
        self._group = group

    async def by_id(self, topic: Topic, message_id: str) -> Message | None:
        """Return the first stored message with an id, from all open brokers."""
        found: list[Message] = []
        for broker, records in await self._query_all(topic, message_id, is_unique=True):
            found += await self._current(topic, broker, records)
        return min(found, key=_store_order, default=None)

    async def by_key(self, topic: Topic, key: str, since_ms: int, until_ms: int) -> list[Message]:
        """Return all messages with a key that were stored in [since, until), the oldest first."""
        found: dict[tuple[str, int], Message] = {}
        # Brokers index the words of a key. A key of spaces only is not indexed.
        word = next(filter(None, key.split(" ")), "")
        ranges = [(since_ms, until_ms)] if word else []
        if not word:
            async for message in self.between(topic, since_ms, until_ms):
                found[message.queue, message.offset] = message
        while ranges:
            low, high = ranges.pop()
            responses = await self._query_all(topic, word, begin_ms=low - _INDEX_BLUR_MS, end_ms=high + _INDEX_BLUR_MS)
            if any(len(records) >= _MAX_INDEXED for _, records in responses):
                newest = max(record.stored_ms for _, records in responses for record in records)
                high = min(high, newest + _INDEX_BLUR_MS)
                oldest = min(record.stored_ms for _, records in responses for record in records)
                if high - low > _MIN_RANGE_MS:
                    middle = max(low + 1, min(oldest, high - 1)) if low < oldest < high else (low + high) // 2
                    ranges += [(low, middle), (middle, high)]
                    continue
                async for message in self.between(topic, low, high):
                    found[message.queue, message.offset] = message
                continue
            for broker, records in responses:
                current = await self._current(topic, broker, records)
                found |= {(message.queue, message.offset): message for message in current}
        matching = [
            message for message in found.values() if message.key == key and since_ms <= message.stored_ms < until_ms
        ]
        return sorted(matching, key=_store_order)

    async def _query_all(
        self, topic: Topic, key: str, *, begin_ms: int = 0, end_ms: int | None = None, is_unique: bool = False
    ) -> list[tuple[str, list[Record]]]:
        brokers = sorted({queue.broker for queue in topic.queues.values() if not queue.is_closed})
        query = self._client.messages.query
        responses = await asyncio.gather(
            *(
                query(
                    broker,
                    topic.wire,
                    key,
                    max_count=_MAX_INDEXED,
                    begin_ms=max(begin_ms, 0),
                    end_ms=end_ms,
                    is_unique=is_unique,
                )
                for broker in brokers
            )
        )
        return list(zip(brokers, responses, strict=True))

    async def _current(self, topic: Topic, broker: str, records: Sequence[Record]) -> list[Message]:
        """Return the messages that belong to the current queues of the topic."""
        firsts: dict[int, int | None] = {}
        for queue_id in {record.queue_id for record in records}:
            queue = topic.queues.get(f"{broker}:{queue_id}")
            if queue is not None and queue.bounds is not None:
                pulled = await pull(
                    self._client, queue.broker, topic.wire, queue.id, queue.bounds.min, 1, group=self._group
                )
                firsts[queue_id] = pulled.records[0].physical_offset if pulled.records else None
        return [
            message_of(topic.name, f"{broker}:{record.queue_id}", record)
            for record in records
            if (first := firsts.get(record.queue_id)) is not None and record.physical_offset >= first
        ]

    async def between(
        self, topic: Topic, since_ms: int, until_ms: int, after: tuple[str, int] | None = None
    ) -> AsyncIterator[Message]:
        """Yield the messages stored in [since, until), queue by queue, starting after `after` (queue, offset)."""
        for queue in sorted(topic.queues.values(), key=_queue_order):
            if queue.is_closed or (after is not None and _queue_order(queue) < _queue_order(topic.queues[after[0]])):
                continue
            first = await self._client.offsets.at(queue.broker, topic.wire, queue.id, since_ms)
            if after is not None and queue.name == after[0]:
                first = max(first, after[1] + 1)
            async for message in self.from_offset(topic, queue, first):
                if message.stored_ms >= until_ms:
                    break
                yield message

    async def from_offset(self, topic: Topic, queue: Queue, offset: int) -> AsyncIterator[Message]:
        """Yield the messages of a queue from an offset to its current end."""
        while True:
            pulled = await pull(self._client, queue.broker, topic.wire, queue.id, offset, _PAGE, group=self._group)
            records: Sequence[Record] = pulled.records
            if pulled.status is Status.MOVED and offset < pulled.min_offset:
                offset = pulled.min_offset
                continue
            if not records:
                return
            for record in records:
                yield message_of(topic.name, queue.name, record)
            offset = records[-1].queue_offset + 1


def _queue_order(queue: Queue) -> tuple[str, int]:
    return queue.broker, queue.id


def _store_order(message: Message) -> tuple[int, str, int]:
    return message.stored_ms, message.queue, message.offset
