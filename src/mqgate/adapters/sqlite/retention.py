"""Retention on the embedded engine: deletes old messages, by age and by size of a topic, in small transactions."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.message_rows import SQL, first_since, offset_of, position
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.adapters.sqlite.topic_state import QueueState
from mqgate.core.lease import QueueBounds

_CHUNK = 2_000


class SqliteRetention:
    """Deletes messages from the database and from the hot tail."""

    def __init__(self, engine: Engine, log: SqliteMessageLog) -> None:
        self._engine = engine
        self._log = log

    def topics(self) -> Sequence[str]:
        return self._log.topics()

    async def delete_older(self, topic: str, retention: timedelta) -> int:
        cutoff = self._engine.clock.now_ms() - retention // timedelta(milliseconds=1)
        # Most topics have nothing to delete. They cost no query.
        queues = [queue for queue in self._log.queues_of(topic) if queue.bounds.min < queue.bounds.max]
        before = [(queue.number, queue.bounds) for queue in queues]
        ends = await self._engine.read(partial(_first_kept, before, cutoff)) if queues else ()
        deleted = 0
        for queue, (_, bounds), end in zip(queues, before, ends, strict=True):
            for after in [*range(bounds.min + _CHUNK, end, _CHUNK), end]:
                if after > bounds.min:
                    await self._expire(topic, queue, after)
            deleted += end - bounds.min
        return deleted

    async def delete_excess(self, topic: str, max_bytes: int) -> int:
        deleted = 0
        while True:
            rows = await self._engine.write(partial(self._sizes, topic=topic))
            excess = sum(size for _, size, _, _ in rows) - max_bytes
            if excess <= 0:
                return deleted
            # From the largest queue first, so that the queues of a topic stay about equally long.
            number, size, low, end = max(rows, key=lambda row: row[1])
            queue = next(queue for queue in self._log.queues_of(topic) if queue.number == number)
            share = min(excess, max(size // 4, 1))
            after = await self._engine.read(
                partial(_after_bytes, number=number, bounds=QueueBounds(low, end), excess=share)
            )
            await self._expire(topic, queue, after)
            deleted += after - low

    def _sizes(self, transaction: Transaction, topic: str) -> list[Any]:
        self._log.ends.record(transaction)
        return transaction.all(SQL["topic_bytes"], (topic,))

    async def _expire(self, topic: str, queue: QueueState, after: int) -> None:
        def job(transaction: Transaction) -> None:
            # Before the last row is deleted: the row of the queue must contain the end of the queue.
            self._log.ends.record(transaction)
            first, last = position(queue.number, 0), position(queue.number, after) - 1
            size = sum(row[1] for row in transaction.execute(SQL["oldest_bytes"], (first, last, _CHUNK)))
            transaction.execute(SQL["drop_messages"], (first, last))
            transaction.execute(SQL["raise_min"], (after, size, queue.number))

        await self._engine.write(job, lambda _: self._log.raise_min(topic, queue, after))


def _first_kept(queues: Sequence[tuple[int, QueueBounds]], cutoff: int, view: View) -> list[int]:
    return [first_since(view, number, bounds, cutoff) for number, bounds in queues]


def _after_bytes(view: View, number: int, bounds: QueueBounds, excess: int) -> int:
    """Return the offset before which at least `excess` bytes are stored, within one chunk."""
    after = bounds.min
    last = position(number, bounds.max) - 1
    for row_position, size in view.execute(SQL["oldest_bytes"], (position(number, bounds.min), last, _CHUNK)):
        after = offset_of(row_position) + 1
        excess -= size
        if excess <= 0:
            break
    return after
