"""Forgets old messages, by age and by size per topic; a little at a time."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SQL, SqliteMessageLog, first_since, offset_of, position
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.core.entries import Topic
from mqgate.core.lease import QueueBounds
from mqgate.core.names import retry_topic
from mqgate.ports.directory import Directory

_CHUNK = 2_000
_NONE: Mapping[str, timedelta] = {}


class Retention:
    """`own`: how long messages are kept of topics that are in no registry."""

    def __init__(
        self, engine: Engine, log: SqliteMessageLog, directory: Directory, own: Mapping[str, timedelta] = _NONE
    ) -> None:
        self._engine = engine
        self._log = log
        self._directory = directory
        self._own = own

    async def run_once(self) -> int:
        """Expire what the topics no longer keep; the number of messages forgotten."""
        forgotten = 0
        for name in self._own.keys() & self._log.topics():
            forgotten += await self._by_age(name, self._own[name])
        for name, topic in self._kept().items():
            if topic.retention is not None:
                forgotten += await self._by_age(name, topic.retention)
            if topic.retention_bytes is not None:
                forgotten += await self._by_size(name, topic.retention_bytes)
        return forgotten

    def _kept(self) -> dict[str, Topic]:
        """Every log and the topic whose rules it follows: a group's private log follows the group's topic."""
        snapshot = self._directory.snapshot
        rules = dict(snapshot.topics)
        for group in snapshot.groups.values():
            rules[retry_topic(group.name)] = snapshot.topics[group.topic]
        return {name: rules[name] for name in self._log.topics() if name in rules}

    async def _by_age(self, topic: str, retention: timedelta) -> int:
        cutoff = self._engine.clock.now_ms() - retention // timedelta(milliseconds=1)
        # There may be thousands of topics, and most have nothing to forget.
        queues = [queue for queue in self._log.queues_of(topic) if queue[2].min < queue[2].max]
        ends = await self._engine.read(partial(_first_kept, queues, cutoff)) if queues else ()
        forgotten = 0
        for (name, number, head), end in zip(queues, ends, strict=True):
            for after in [*range(head.min + _CHUNK, end, _CHUNK), end]:
                if after > head.min:
                    await self._expire(topic, name, number, after)
            forgotten += end - head.min
        return forgotten

    async def _by_size(self, topic: str, most: int) -> int:
        forgotten = 0
        while True:
            rows = await self._engine.write(partial(self._sizes, topic=topic))
            excess = sum(size for _, size, _, _ in rows) - most
            if excess <= 0:
                return forgotten
            # From the fullest queue first: queues of a topic stay about equally long.
            number, size, low, end = max(rows, key=lambda row: row[1])
            name = next(name for name, own, _ in self._log.queues_of(topic) if own == number)
            share = min(excess, max(size // 4, 1))
            after = await self._engine.read(
                partial(_after_bytes, number=number, head=QueueBounds(low, end), excess=share)
            )
            await self._expire(topic, name, number, after)
            forgotten += after - low

    def _sizes(self, transaction: Transaction, topic: str) -> list[Any]:
        self._log.note_ends(transaction)
        return transaction.all(SQL["topic_bytes"], (topic,))

    async def _expire(self, topic: str, name: str, number: int, after: int) -> None:
        def job(transaction: Transaction) -> None:
            # Before the last row may go: the queue's row must know where the queue ends.
            self._log.note_ends(transaction)
            first, last = position(number, 0), position(number, after) - 1
            size = sum(row[1] for row in transaction.execute(SQL["oldest_bytes"], (first, last, _CHUNK)))
            transaction.execute(SQL["drop_messages"], (first, last))
            transaction.execute(SQL["raise_min"], (after, size, number))

        await self._engine.write(job, lambda _: self._log.moved(topic, name, low=after))


def _first_kept(queues: Sequence[tuple[str, int, QueueBounds]], cutoff: int, view: View) -> list[int]:
    return [first_since(view, number, head, cutoff) for _, number, head in queues]


def _after_bytes(view: View, number: int, head: QueueBounds, excess: int) -> int:
    """The offset before which at least `excess` bytes lie, at most one chunk further."""
    after = head.min
    last = position(number, head.max) - 1
    for place, size in view.execute(SQL["oldest_bytes"], (position(number, head.min), last, _CHUNK)):
        after = offset_of(place) + 1
        excess -= size
        if excess <= 0:
            break
    return after
