"""The message log on SQLite.

Reads of the newest messages are served from memory (hot_tail.py), other reads by the reading thread. Appends share
transactions (message_appender.py). The bounds of the queues are kept in memory and updated after each commit, so that
queries for them do no I/O.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mqgate.adapters.sqlite import message_columns
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.hot_tail import HotTail
from mqgate.adapters.sqlite.message_appender import AppendedRow, MessageAppender
from mqgate.adapters.sqlite.message_rows import SQL, first_since, message_of, number_of, offset_of, position, read
from mqgate.adapters.sqlite.queue_ends import QueueEnds, stored_queues
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.adapters.sqlite.topic_state import QueueState, TopicState
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.errors import QueueNotFound, TopicNotFound
from mqgate.core.lease import QueueBounds
from mqgate.core.message import Draft, Message, Stored, milliseconds
from mqgate.ports.message_columns import as_columns
from mqgate.ports.message_log import TopicBounds

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SqliteMessageLog"]


class SqliteMessageLog:
    """MessageLog on the embedded engine. The only broker is named `local`."""

    def __init__(self, engine: Engine, *, max_tail_bytes: int = 32 << 20) -> None:
        self._engine = engine
        self._topics: dict[str, TopicState] = {}
        self._version = 1
        self._watchers: dict[str, list[Callable[[str, int], None]]] = {}
        self._appender = MessageAppender(engine, QueueEnds(), self._appended)
        self.ends = self._appender.ends
        self.tail = HotTail(max_tail_bytes)

    async def load(self) -> None:
        """Read the queues of the database. Called once, before anything else."""
        for stored in await self._engine.read(stored_queues):
            self.ends.load(stored)
            bounds = QueueBounds(stored.min_offset, stored.next_offset)
            queue = QueueState(stored.queue_id, stored.number, bounds, self._version, stored.last_append_ms)
            self._topics.setdefault(stored.topic, TopicState(stored.topic)).add(queue)

    async def create(self, topic: str, queues: int, *, is_per_broker: bool = False) -> None:  # noqa: ARG002 - one broker
        def job(transaction: Transaction) -> list[Any]:
            for queue_id in range(queues):
                transaction.execute(SQL["add_queue"], (topic, queue_id))
            self.ends.record(transaction)
            rows = transaction.all(SQL["queue_numbers"], (topic,))
            changes = self.ends.changes(transaction)
            for _, number, _, next_offset in rows:
                if self.ends.next_offset(number) is None:
                    changes.setdefault(number, next_offset)
            return rows

        def publish(rows: list[Any]) -> None:
            self._version += 1
            state = self._topics.setdefault(topic, TopicState(topic))
            for queue_id, number, min_offset, next_offset in rows[len(state.queues) :]:
                state.add(QueueState(queue_id, number, QueueBounds(min_offset, next_offset), self._version))

        await self._engine.write(job, publish)

    async def drop(self, topic: str) -> None:
        def job(transaction: Transaction) -> None:
            changes = self.ends.changes(transaction)
            for _, number, _, _ in transaction.all(SQL["queue_numbers"], (topic,)):
                # All positions of the queue: this transaction may have appended to it.
                transaction.execute(SQL["drop_messages"], (position(number, 0), position(number + 1, 0) - 1))
                changes[number] = None
            transaction.execute(SQL["drop_queues"], (topic,))

        def forget(_: None) -> None:
            state = self._topics.pop(topic, None)
            for queue in state.queues if state else ():
                self.tail.clear(queue.tail)

        await self._engine.write(job, forget)

    async def append(
        self,
        topic: str,
        drafts: Sequence[Draft],
        producer: str = "",  # noqa: ARG002 - for a broker; the embedded engine has none
    ) -> Sequence[Stored]:
        """Store messages in one transaction. A failure concerns the whole call and is raised."""
        return await self._appender.append(self._topic(topic), drafts)

    async def read(
        self,
        topic: str,
        queue: str,
        offset: int,
        max_count: int,
        max_bytes: int,
        group: str = "",  # noqa: ARG002 - for a broker; the embedded engine has none
    ) -> Sequence[Message]:
        state = self._queue(topic, queue)
        if not state.bounds.min <= offset < state.bounds.max:
            return ()
        rows = state.tail.read(offset, max_count, max_bytes)
        if rows is not None:
            return [message_of(topic, queue, row) for row in rows]
        number = state.number

        def job(view: View) -> list[Message]:
            return [message_of(topic, queue, row) for row in read(view, number, offset, max_count, max_bytes)]

        return await self._engine.read(job)

    async def read_columns(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, names: Sequence[str]
    ) -> "pa.RecordBatch":
        state = self._queue(topic, queue)
        first = position(state.number, offset)

        def job(view: View) -> "pa.RecordBatch":
            constant = {"topic": topic, "queue": queue, "offset": offset}
            page = message_columns.page(view, first, max_count, max_bytes, names, constant)
            if page is not None:
                return page
            rows = read(view, state.number, offset, max_count, max_bytes)
            return as_columns([message_of(topic, queue, row) for row in rows], names)

        page = await self._engine.scan(job)
        if not page.num_rows and offset < state.bounds.max:
            # Retention or the deletion of the topic was faster. The loop knows of a commit once the writer has run
            # another job.
            await self._engine.step(lambda _: None)
            if self._queue(topic, queue) is not state:
                raise TopicNotFound(f"Topic {topic} was deleted.", topic=topic)
        return page

    async def bounds(self, topic: str, since: int = 0) -> TopicBounds:
        changed: dict[str, QueueBounds] = {}
        last_append_ms: dict[str, int] = {}
        for queue in self._topic(topic).changed_since(since):
            changed[queue.name] = queue.bounds
            if queue.last_append_ms:
                last_append_ms[queue.name] = queue.last_append_ms
        return TopicBounds(self._version, changed, last_append_ms=last_append_ms)

    async def current_bounds(self, topic: str, *, is_complete: bool = True) -> TopicBounds:  # noqa: ARG002 - always
        return await self.bounds(topic)

    def is_known_missing(self, topic: str) -> bool:
        return topic not in self._topics

    async def offsets_at(self, topic: str, instant: datetime) -> Mapping[str, int]:
        since_ms = milliseconds(instant)
        queues = [(queue.name, queue.number, queue.bounds) for queue in self._topic(topic).queues]

        def job(view: View) -> dict[str, int]:
            return {name: first_since(view, number, bounds, since_ms) for name, number, bounds in queues}

        return await self._engine.read(job)

    async def find(self, topic: str, message_id: str) -> Message | None:
        names = self._names(topic)
        row = await self._engine.read(lambda view: view.one(SQL["by_id"], (message_id, topic)))
        return None if row is None else message_of(topic, names[number_of(row[0])], row)

    async def find_by_key(
        self, topic: str, key: str | None, *, since: datetime, until: datetime, limit: int, after: str | None
    ) -> tuple[Sequence[Message], str | None]:
        names = self._names(topic)
        queues = [(queue.number, queue.bounds) for queue in self._topic(topic).queues]
        (previous,) = (-1,) if after is None else parse_cursor(after, MAX_ROW)
        low, high = milliseconds(since), milliseconds(until)

        def job(view: View) -> list[Any]:
            if key is not None:
                return view.all(SQL["by_key"], (key, previous, topic, low, high, limit + 1))
            rows: list[Any] = []
            for number, bounds in sorted(queues):
                first = max(position(number, first_since(view, number, bounds, low)), previous + 1)
                last = position(number, first_since(view, number, bounds, high)) - 1
                if first <= last:
                    rows += view.all(SQL["read"], (first, last, limit + 1 - len(rows)))
                if len(rows) > limit:
                    break
            return rows

        rows = await self._engine.read(job)
        found = [message_of(topic, names[number_of(row[0])], row) for row in rows[:limit]]
        return found, str(rows[limit - 1][0]) if len(rows) > limit else None

    def watch(self, topic: str, arrived: Callable[[str, int], None]) -> Callable[[], None]:
        watchers = self._watchers.setdefault(topic, [])
        watchers.append(arrived)
        return lambda: watchers.remove(arrived)

    async def probe(self) -> None:
        """Raise the error of the last append, if it failed."""
        if self._appender.fault is not None:
            raise self._appender.fault

    def topics(self) -> list[str]:
        return list(self._topics)

    def queues_of(self, topic: str) -> list[QueueState]:
        return self._topic(topic).queues

    def raise_min(self, topic: str, queue: QueueState, min_offset: int) -> None:
        """Update the min offset of a queue after the commit that deleted its oldest messages."""
        state = self._topics.get(topic)
        if state is None or state.by_name.get(queue.name) is not queue:
            # The topic was deleted first.
            return
        queue.bounds = QueueBounds(min_offset, queue.bounds.max)
        self.tail.trim(queue.tail, min_offset)
        self._version += 1
        state.mark_changed(queue, self._version)

    def _appended(self, rows: Sequence[AppendedRow]) -> None:
        """Update tails and bounds after the commit of rows, and notify the watchers of their topics."""
        self.tail.add((queue.tail, row) for _, queue, row in rows)
        newest = {queue: (topic, row) for topic, queue, row in rows}
        for queue, (topic, row) in newest.items():
            end = offset_of(row[0]) + 1
            count = end - queue.bounds.max
            queue.bounds = QueueBounds(queue.bounds.min, end)
            queue.last_append_ms = row[5]
            self._version += 1
            topic.mark_changed(queue, self._version)
            for arrived in self._watchers.get(topic.name, ()):
                arrived(queue.name, count)

    def _topic(self, name: str) -> TopicState:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"Topic {name} is not registered. Use PUT /v1/topics/{name}.", topic=name)
        return topic

    def _queue(self, topic: str, name: str) -> QueueState:
        queue = self._topic(topic).by_name.get(name)
        if queue is None:
            raise QueueNotFound(f"Topic {topic} has no queue {name}.", queue=name)
        return queue

    def _names(self, topic: str) -> dict[int, str]:
        return {queue.number: queue.name for queue in self._topic(topic).queues}
