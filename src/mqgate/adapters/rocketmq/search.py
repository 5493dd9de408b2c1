"""Looking messages up by id, by key and by time.

The brokers' index holds ids and keys by hash and by second, and answers 64 at most: what it says is checked, and a
time span that may hold more is halved until it does not, or is read message by message. It also knows the messages of
a topic of the same name that was deleted: what lies in the log before a queue's first message is not the queue's.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from mqgate.adapters.rocketmq.puller import pull
from mqgate.adapters.rocketmq.topics import Queue, Topic
from mqgate.adapters.rocketmq.translate import message_of
from mqgate.core.message import Message
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.messages import Status
from mqgate.rocketmq.remoting.record import Record

__all__ = ["Search"]

_MOST_INDEXED = 64
_SHORTEST_SPAN_MS = 4_000
_INDEX_BLUR_MS = 2_000
_PAGE = 32


class Search:
    def __init__(self, client: RocketMQClient, group: str) -> None:
        self._client = client
        self._group = group

    async def by_id(self, topic: Topic, message_id: str) -> Message | None:
        """The first stored message of an id, among those brokers that answer."""
        found: list[Message] = []
        for broker, records in await self._ask_all(topic, message_id, is_unique=True):
            found += await self._own(topic, broker, records)
        return min(found, key=lambda each: (each.stored_ms, each.queue, each.offset), default=None)

    async def by_key(self, topic: Topic, key: str, since_ms: int, until_ms: int) -> list[Message]:
        """All messages of a key stored in [since, until), the oldest first."""
        found: dict[tuple[str, int], Message] = {}
        # Brokers index the words of a key. One without any is in no index.
        word = next(filter(None, key.split(" ")), "")
        spans = [(since_ms, until_ms)] if word else []
        if not word:
            found = {(each.queue, each.offset): each async for each in self.between(topic, since_ms, until_ms)}
        while spans:
            low, high = spans.pop()
            answers = await self._ask_all(topic, word, begin_ms=low - _INDEX_BLUR_MS, end_ms=high + _INDEX_BLUR_MS)
            if any(len(records) >= _MOST_INDEXED for _, records in answers):
                newest = max(record.stored_ms for _, records in answers for record in records)
                high = min(high, newest + _INDEX_BLUR_MS)
                oldest = min(record.stored_ms for _, records in answers for record in records)
                if high - low > _SHORTEST_SPAN_MS:
                    middle = max(low + 1, min(oldest, high - 1)) if low < oldest < high else (low + high) // 2
                    spans += [(low, middle), (middle, high)]
                    continue
                async for message in self.between(topic, low, high):
                    found[message.queue, message.offset] = message
                continue
            for broker, records in answers:
                own = await self._own(topic, broker, records)
                found |= {(message.queue, message.offset): message for message in own}
        wanted = [each for each in found.values() if each.key == key and since_ms <= each.stored_ms < until_ms]
        return sorted(wanted, key=lambda each: (each.stored_ms, each.queue, each.offset))

    async def _ask_all(
        self, topic: Topic, key: str, *, begin_ms: int = 0, end_ms: int | None = None, is_unique: bool = False
    ) -> list[tuple[str, list[Record]]]:
        brokers = sorted({queue.broker for queue in topic.queues.values() if not queue.is_closed})
        query = self._client.messages.query
        answers = await asyncio.gather(
            *(
                query(
                    broker,
                    topic.wire,
                    key,
                    most=_MOST_INDEXED,
                    begin_ms=max(begin_ms, 0),
                    end_ms=end_ms,
                    is_unique=is_unique,
                )
                for broker in brokers
            )
        )
        return list(zip(brokers, answers, strict=True))

    async def _own(self, topic: Topic, broker: str, records: Sequence[Record]) -> list[Message]:
        """Those that lie in the topic's queues as they are now."""
        firsts: dict[int, int | None] = {}
        for queue_id in {record.queue_id for record in records}:
            queue = topic.queues.get(f"{broker}:{queue_id}")
            if queue is not None and queue.head is not None:
                pulled = await pull(self._client, topic, queue, queue.head.min, 1, group=self._group)
                firsts[queue_id] = pulled.records[0].physical_offset if pulled.records else None
        return [
            message_of(topic.name, f"{broker}:{record.queue_id}", record)
            for record in records
            if (first := firsts.get(record.queue_id)) is not None and record.physical_offset >= first
        ]

    async def between(
        self, topic: Topic, since_ms: int, until_ms: int, after: tuple[str, int] | None = None
    ) -> AsyncIterator[Message]:
        """Everything stored in [since, until), queue by queue; `after`: from behind this queue's offset on."""
        for queue in sorted(topic.queues.values(), key=_order):
            if queue.is_closed or (after is not None and _order(queue) < _order(topic.queues[after[0]])):
                continue
            first = await self._client.offsets.at(queue.broker, topic.wire, queue.id, since_ms)
            if after is not None and queue.name == after[0]:
                first = max(first, after[1] + 1)
            async for message in self.from_offset(topic, queue, first):
                if message.stored_ms >= until_ms:
                    break
                yield message

    async def from_offset(self, topic: Topic, queue: Queue, offset: int) -> AsyncIterator[Message]:
        """A queue's messages from an offset on, up to its end as it is now."""
        while True:
            pulled = await pull(self._client, topic, queue, offset, _PAGE, group=self._group)
            records: Sequence[Record] = pulled.records
            if pulled.status is Status.MOVED and offset < pulled.min_offset:
                offset = pulled.min_offset
                continue
            if not records:
                return
            for record in records:
                yield message_of(topic.name, queue.name, record)
            offset = records[-1].queue_offset + 1


def _order(queue: Queue) -> tuple[str, int]:
    return queue.broker, queue.id
