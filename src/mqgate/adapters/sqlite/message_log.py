"""The log in SQLite.

Concurrent appends meet in one deque; whichever job the writer runs next takes all of them and inserts many rows with
one statement: every statement more hands the interpreter's lock back and forth. The next offset of a queue is the
one behind its last row; the writer remembers it from commit to commit, so offsets are dense whatever fails. The rows
of `queue` are brought up to date once a second. The ends are also kept for the loop's thread, replaced after each
commit, so that asking for them costs nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mqgate.adapters.sqlite import message_columns
from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.errors import MqgateError, QueueNotFound, TopicNotFound
from mqgate.core.lease import QueueBounds
from mqgate.core.message import NO_PROPERTIES, Draft, Message, Stored, instant, milliseconds
from mqgate.ports.message_columns import as_columns
from mqgate.ports.message_log import TopicBounds

if TYPE_CHECKING:
    import pyarrow as pa

SQL = queries("message_log")
_OFFSET_BITS = 40
_INSERT = "INSERT INTO message (position, id, key, tag, properties, stored_at, body) VALUES "
_ROW = "(?, ?, ?, ?, ?, ?, ?)"
_MOST_ROWS = 128
_NOTE_MS = 1_000
_decode_properties = msgspec.json.Decoder(dict[str, str]).decode


def position(number: int, offset: int) -> int:
    return number << _OFFSET_BITS | offset


def offset_of(place: int) -> int:
    return place & (1 << _OFFSET_BITS) - 1


class _Queue:
    """A queue's number in the database and its ends, as of the last commit."""

    __slots__ = ("head", "name", "number", "rose_ms", "version")

    def __init__(self, name: str, number: int, head: QueueBounds, version: int, rose_ms: int = 0) -> None:
        self.rose_ms = rose_ms
        self.name = name
        self.number = number
        self.head = head
        self.version = version


class _Topic:
    def __init__(self) -> None:
        self.queues: list[_Queue] = []
        self.by_name: dict[str, _Queue] = {}
        # In order of their last change, so that `heads` looks only at what changed.
        self.changed: dict[str, _Queue] = {}
        self.turn = 0

    def add(self, queue: _Queue) -> None:
        self.queues.append(queue)
        self.by_name[queue.name] = queue
        self.changed[queue.name] = queue


class _Pending(NamedTuple):
    topic: str
    drafts: Sequence[Draft]
    answer: asyncio.Future[list[Stored]]


class SqliteMessageLog:
    """MessageLog on the embedded engine; the only broker is called `local`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._topics: dict[str, _Topic] = {}
        self._version = 1
        # Why the last append failed, until one succeeds.
        self.fault: MqgateError | None = None
        self._watchers: dict[str, list[Callable[[str, int], None]]] = {}
        # The writer's: next offset by queue number; and what it has not yet written into the queues' rows.
        self._tails: dict[int, int | None] = {}
        self._unnoted: dict[int, int] = {}
        self._noted_ms = 0
        self._pending: deque[_Pending] = deque()
        self._is_flush_posted = False

    async def load(self) -> None:
        """Read the queues that the database holds; once, before anything else."""

        def job(view: View) -> list[Any]:
            found = []
            for topic, queue_id, number, low, noted in view.all(SQL["all_queues"]):
                last, size = view.one(SQL["unnoted"], _positions(number, noted))
                end = noted if last is None else offset_of(last) + 1
                last_append_ms = view.one(SQL["stored_at"], (position(number, end - 1),))
                found.append(
                    (topic, queue_id, number, low, noted, end, size, last_append_ms[0] if last_append_ms else 0)
                )
            return found

        for topic, queue_id, number, low, noted, end, size, rose_ms in await self._engine.read(job):
            self._tails[number] = end
            if end != noted:
                # The process ended before it brought the queue's row up to date.
                self._unnoted[number] = size
            queue = _Queue(f"local:{queue_id}", number, QueueBounds(low, end), self._version, rose_ms)
            self._topics.setdefault(topic, _Topic()).add(queue)

    async def create(self, topic: str, queues: int, *, is_per_broker: bool = False) -> None:  # noqa: ARG002 - one broker
        def job(transaction: Transaction) -> list[Any]:
            for queue_id in range(queues):
                transaction.execute(SQL["add_queue"], (topic, queue_id))
            self.note_ends(transaction)
            rows = transaction.all(SQL["queue_numbers"], (topic,))
            tails = transaction.drafts.setdefault(_Flush, {})
            tails |= {number: end for _, number, _, end in rows if self._tails.get(number) is None}
            transaction.on_commit.append(lambda: self.committed(tails, ()))
            return rows

        def publish(rows: list[Any]) -> None:
            self._version += 1
            entry = self._topics.setdefault(topic, _Topic())
            for queue_id, number, low, end in rows[len(entry.queues) :]:
                entry.add(_Queue(f"local:{queue_id}", number, QueueBounds(low, end), self._version))

        await self._engine.write(job, publish)

    async def drop(self, topic: str) -> None:
        def job(transaction: Transaction) -> None:
            self.note_ends(transaction)
            tails = transaction.drafts.setdefault(_Flush, {})
            for _, number, low, end in transaction.all(SQL["queue_numbers"], (topic,)):
                transaction.execute(SQL["drop_messages"], (position(number, low), position(number, end)))
                tails[number] = None
            transaction.on_commit.append(lambda: self.committed(tails, ()))
            transaction.execute(SQL["drop_queues"], (topic,))

        def forget(_: None) -> None:
            self._topics.pop(topic, None)

        await self._engine.write(job, forget)

    async def append(
        self,
        topic: str,
        drafts: Sequence[Draft],
        producer: str = "",  # noqa: ARG002 - for a broker; there is none here
    ) -> Sequence[Stored]:
        """Store messages in one transaction: a failure is of the whole call, and raised."""
        self._topic(topic)
        answer: asyncio.Future[list[Stored]] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(topic, drafts, answer))
        if not self._is_flush_posted:
            self._is_flush_posted = True
            flush = _Flush(self)
            self._engine.post(flush, flush.answer).add_done_callback(flush.fail)
        return await answer

    async def read(
        self,
        topic: str,
        queue: str,
        offset: int,
        max_count: int,
        max_bytes: int,
        group: str = "",  # noqa: ARG002 - for a broker; there is none here
    ) -> Sequence[Message]:
        number = self._queue(topic, queue).number
        return await self._engine.read(lambda view: _read(view, topic, queue, number, offset, max_count, max_bytes))

    async def read_columns(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, names: Sequence[str]
    ) -> "pa.RecordBatch":
        entry = self._queue(topic, queue)
        first = position(entry.number, offset)

        def job(view: View) -> "pa.RecordBatch":
            same = {"topic": topic, "queue": queue, "offset": offset}
            page = message_columns.page(view, first, max_count, max_bytes, names, same)
            if page is not None:
                return page
            return as_columns(_read(view, topic, queue, entry.number, offset, max_count, max_bytes), names)

        page = await self._engine.scan(job)
        if not page.num_rows and offset < entry.head.max:
            # Retention was here, or the topic was dropped a moment ago and we are told after what the writer does now.
            await self._engine.step(lambda _: None)
            if self._queue(topic, queue) is not entry:
                raise TopicNotFound(f"topic {topic} was deleted", topic=topic)
        return page

    async def bounds(self, topic: str, since: int = 0) -> TopicBounds:
        changed: dict[str, QueueBounds] = {}
        last_append_ms: dict[str, int] = {}
        for queue in reversed(self._topic(topic).changed.values()):
            if queue.version <= since:
                break
            changed[queue.name] = queue.head
            if queue.rose_ms:
                last_append_ms[queue.name] = queue.rose_ms
        return TopicBounds(self._version, changed, last_append_ms=last_append_ms)

    async def current_bounds(self, topic: str, *, is_complete: bool = True) -> TopicBounds:  # noqa: ARG002 - it always is
        return await self.bounds(topic)

    def is_known_missing(self, topic: str) -> bool:
        return topic not in self._topics

    async def offsets_at(self, topic: str, instant: datetime) -> Mapping[str, int]:
        sought = milliseconds(instant)
        queues = [(queue.name, queue.number, queue.head) for queue in self._topic(topic).queues]

        def job(view: View) -> dict[str, int]:
            return {name: first_since(view, number, head, sought) for name, number, head in queues}

        return await self._engine.read(job)

    async def find(self, topic: str, message_id: str) -> Message | None:
        names = self._names(topic)

        def job(view: View) -> Message | None:
            row = view.one(SQL["by_id"], (message_id, topic))
            return None if row is None else _message(topic, names[row[0] >> _OFFSET_BITS], row)

        return await self._engine.read(job)

    async def find_by_key(
        self, topic: str, key: str | None, *, since: datetime, until: datetime, limit: int, after: str | None
    ) -> tuple[Sequence[Message], str | None]:
        names = self._names(topic)
        queues = [(queue.number, queue.head) for queue in self._topic(topic).queues]
        (place,) = (-1,) if after is None else parse_cursor(after, MAX_ROW)
        low, high = milliseconds(since), milliseconds(until)

        def job(view: View) -> list[Any]:
            if key is not None:
                return view.all(SQL["by_key"], (key, place, topic, low, high, limit + 1))
            rows: list[Any] = []
            for number, head in sorted(queues):
                first = max(position(number, first_since(view, number, head, low)), place + 1)
                last = position(number, first_since(view, number, head, high)) - 1
                if first <= last:
                    rows += view.execute(SQL["read"], (first, last, limit + 1 - len(rows))).fetchall()
                if len(rows) > limit:
                    break
            return rows

        rows = await self._engine.read(job)
        found = [_message(topic, names[row[0] >> _OFFSET_BITS], row) for row in rows[:limit]]
        return found, str(rows[limit - 1][0]) if len(rows) > limit else None

    def watch(self, topic: str, arrived: Callable[[str, int], None]) -> Callable[[], None]:
        watchers = self._watchers.setdefault(topic, [])
        watchers.append(arrived)
        return lambda: watchers.remove(arrived)

    async def probe(self) -> None:
        """Raise what the last append did, if it failed."""
        if self.fault is not None:
            raise self.fault

    def moved(self, topic: str, name: str, *, low: int | None = None, end: int | None = None, at_ms: int = 0) -> None:
        """Take note of a queue's new end, of that time, or new beginning, after the commit that moved it."""
        entry = self._topics.get(topic)
        queue = entry and entry.by_name.get(name)
        if entry and queue:
            self._version += 1
            came = 0 if end is None else end - queue.head.max
            queue.head = QueueBounds(queue.head.min if low is None else low, queue.head.max if end is None else end)
            queue.rose_ms = at_ms or queue.rose_ms
            queue.version = self._version
            entry.changed.pop(name)
            entry.changed[name] = queue
            for arrived in self._watchers.get(topic, ()) if came else ():
                arrived(name, came)

    def committed(self, tails: Mapping[int, int | None], rows: Sequence[tuple[Any, ...]]) -> None:
        """The writer's thread, after a commit: the tails are true now; None: the queue is gone."""
        self._tails.update(tails)
        for row in rows:
            number = row[0] >> _OFFSET_BITS
            self._unnoted[number] = self._unnoted.get(number, 0) + len(row[6]) + len(row[4] or "")

    def note_ends(self, transaction: Transaction, at_least_ms: int = 0) -> None:
        """The writer's thread: write tails and sizes into the queues' rows, not more often than asked."""
        if not self._unnoted or transaction.now_ms < self._noted_ms + at_least_ms:
            return
        noted = dict(self._unnoted)
        for number, size in noted.items():
            transaction.execute(SQL["note_ends"], (self._tails[number], size, number))

        def done() -> None:
            self._noted_ms = transaction.now_ms
            for number in noted:
                self._unnoted.pop(number, None)

        # Before what this transaction itself adds is counted.
        transaction.on_commit.insert(0, done)

    def topics(self) -> list[str]:
        return list(self._topics)

    def queues_of(self, topic: str) -> list[tuple[str, int, QueueBounds]]:
        return [(queue.name, queue.number, queue.head) for queue in self._topic(topic).queues]

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name} is not registered: PUT /v1/topics/{name} first", topic=name)
        return topic

    def _queue(self, topic: str, name: str) -> _Queue:
        queue = self._topic(topic).by_name.get(name)
        if queue is None:
            raise QueueNotFound(f"topic {topic} has no queue {name}", queue=name)
        return queue

    def _names(self, topic: str) -> dict[int, str]:
        return {queue.number: queue.name for queue in self._topic(topic).queues}


class _Flush:
    """One writer's job that stores whatever appends wait when it runs."""

    def __init__(self, log: SqliteMessageLog) -> None:
        self._log = log
        self._batch: list[_Pending] | None = None
        self._stored: list[list[Stored]] = []
        self._stored_ms = 0
        self._advanced: dict[tuple[str, str], int] = {}

    def __call__(self, transaction: Transaction) -> None:
        log = self._log
        if self._batch is None:
            # First cleared, then drained: who appends after the drain posts a flush of its own.
            log._is_flush_posted = False  # noqa: SLF001 - the log's other half
            waiting = log._pending  # noqa: SLF001 - the log's other half
            self._batch = [waiting.popleft() for _ in range(len(waiting))]
        self._stored, self._advanced = [], {}
        rows: list[tuple[Any, ...]] = []
        tails: dict[int, int | None] = transaction.drafts.setdefault(_Flush, {})
        now_ms, stored_at = transaction.now_ms, instant(transaction.now_ms)
        self._stored_ms = now_ms
        for topic_name, drafts, _ in self._batch:
            topic = log._topics.get(topic_name)  # noqa: SLF001 - the log's other half
            stored: list[Stored] = []
            self._stored.append(stored)
            if topic is None:
                continue
            for message_id, body, key, tag, properties, slot in drafts:
                queue = self._choose(topic, slot)
                number = queue.number
                offset = tails[number] if number in tails else log._tails.get(number)  # noqa: SLF001 - the log's other half
                if offset is None:
                    # The topic was dropped since: this append fails, as if it had come later.
                    break
                tails[number] = offset + 1
                encoded = msgspec.json.encode(properties).decode() if properties else None
                rows.append((number << _OFFSET_BITS | offset, message_id, key, tag, encoded, now_ms, body))
                stored.append(Stored(queue.name, offset, stored_at))
                self._advanced[topic_name, queue.name] = offset + 1
        _insert(transaction, rows)
        transaction.on_commit.append(lambda: log.committed(tails, rows))
        log.note_ends(transaction, at_least_ms=_NOTE_MS)

    @staticmethod
    def _choose(topic: _Topic, slot: int | None) -> _Queue:
        if slot is None:
            slot = topic.turn
            topic.turn += 1
        return topic.queues[slot % len(topic.queues)]

    def answer(self, _: None) -> None:
        self._log.fault = None
        for (topic, queue), end in self._advanced.items():
            self._log.moved(topic, queue, end=end, at_ms=self._stored_ms)
        for pending, stored in zip(self._batch or (), self._stored, strict=True):
            if pending.answer.done():
                continue
            if len(stored) == len(pending.drafts):
                pending.answer.set_result(stored)
            else:
                pending.answer.set_exception(TopicNotFound(f"topic {pending.topic} was deleted", topic=pending.topic))

    def fail(self, flushed: asyncio.Future[None]) -> None:
        error = flushed.exception()
        if isinstance(error, MqgateError):
            self._log.fault = error
        for pending in self._batch or ():
            if error is not None and not pending.answer.done():
                pending.answer.set_exception(error)


def _insert(transaction: Transaction, rows: list[tuple[Any, ...]]) -> None:
    """Insert with as few statements as possible; each size has one text, so that SQLite keeps it prepared."""
    for start in range(0, len(rows), _MOST_ROWS):
        chunk = rows[start : start + _MOST_ROWS]
        transaction.execute(_statement(len(chunk)), tuple(chain.from_iterable(chunk)))


@cache
def _statement(rows: int) -> str:
    return _INSERT + ", ".join((_ROW,) * rows)


def _read(
    view: View, topic: str, queue: str, number: int, offset: int, max_count: int, max_bytes: int
) -> Sequence[Message]:
    first, last = position(number, offset), position(number, offset + max_count - 1)
    found: list[Message] = []
    size = 0
    for row in view.execute(SQL["read"], (first, last, max_count)):
        size += len(row[6])
        if found and size > max_bytes:
            break
        found.append(_message(topic, queue, row))
    return found if found and found[0].offset == offset else ()


def _message(topic: str, queue: str, row: Any) -> Message:
    place, message_id, key, tag, properties, stored_at, body = row
    return Message(
        message_id,
        topic,
        queue,
        offset_of(place),
        body,
        key,
        tag,
        _decode_properties(properties) if properties else NO_PROPERTIES,
        stored_at,
    )


def _positions(number: int, first: int) -> tuple[int, int]:
    """The positions of a queue from an offset on."""
    return position(number, first), position(number + 1, 0) - 1


def first_since(view: View, number: int, head: QueueBounds, sought: int) -> int:
    """The first offset stored at or after an instant, by halving: offsets are dense and times never fall."""
    low, high = head
    while low < high:
        middle = (low + high) // 2
        row = view.execute(SQL["stored_at"], (position(number, middle),)).fetchone()
        # A row that is gone was expired by retention a moment ago: it is too old.
        if row is None or row[0] < sought:
            low = middle + 1
        else:
            high = middle
    return low
