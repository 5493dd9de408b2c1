"""Group commit of appends.

The appends of one turn of the event loop are posted to the writing thread as one job. The job takes all appends that
have arrived when it runs, and inserts their rows with as few statements as possible.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import msgspec

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_rows import Row, position
from mqgate.adapters.sqlite.queue_ends import QueueEnds
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.adapters.sqlite.topic_state import QueueState, TopicState
from mqgate.core.errors import MqgateError, TopicNotFound
from mqgate.core.message import Draft, Stored, instant

__all__ = ["AppendedRow", "MessageAppender"]

_encode = msgspec.json.Encoder().encode
_INSERT = "INSERT INTO message (position, id, key, tag, properties, stored_at, body) VALUES "
_VALUES = "(?, ?, ?, ?, ?, ?, ?)"
_MAX_ROWS = 128
_RECORD_INTERVAL_MS = 1_000

AppendedRow = tuple[TopicState, QueueState, Row]


class _Append(NamedTuple):
    topic: TopicState
    drafts: Sequence[Draft]
    result: asyncio.Future[list[Stored]]


class MessageAppender:
    """Appends messages. `appended` is called after each commit with its rows, before any result is returned."""

    def __init__(self, engine: Engine, ends: QueueEnds, appended: Callable[[Sequence[AppendedRow]], None]) -> None:
        self._engine = engine
        self._appends: deque[_Append] = deque()
        self._is_posted = False
        self.ends = ends
        self.appended = appended
        # The error of the last append, or None if it succeeded.
        self.fault: MqgateError | None = None

    def append(self, topic: TopicState, drafts: Sequence[Draft]) -> asyncio.Future[list[Stored]]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[Stored]] = loop.create_future()
        self._appends.append(_Append(topic, drafts, result))
        if not self._is_posted:
            self._is_posted = True
            # At the end of this turn of the loop: its other appends share the commit, and the writer can start at once.
            loop.call_soon(self._post)
        return result

    def take(self) -> list[_Append]:
        """Return the appends that have arrived. Called by the writing thread."""
        # The flag is cleared first: an append that arrives now is taken here, or posts a job of its own.
        self._is_posted = False
        return [self._appends.popleft() for _ in range(len(self._appends))]

    def _post(self) -> None:
        job = _AppendJob(self)
        try:
            self._engine.post(job, job.succeed, job.fail)
        except MqgateError as error:
            job.appends = self.take()
            job.fail(error)


class _AppendJob:
    """The job that stores the appends. It can be run again after another job of its transaction has failed."""

    def __init__(self, appender: MessageAppender) -> None:
        self._appender = appender
        self.appends: list[_Append] | None = None
        self._rows: list[AppendedRow] = []
        self._stored: list[list[Stored]] = []

    def __call__(self, transaction: Transaction) -> None:
        if self.appends is None:
            self.appends = self._appender.take()
        ends = self._appender.ends
        changes = ends.changes(transaction)
        self._rows, self._stored = [], []
        now_ms, stored_at = transaction.now_ms, instant(transaction.now_ms)
        for topic, drafts, _ in self.appends:
            stored: list[Stored] = []
            self._stored.append(stored)
            for message_id, body, key, tag, properties, slot in drafts:
                queue = topic.select(slot)
                number = queue.number
                offset = changes[number] if number in changes else ends.next_offset(number)
                if offset is None:
                    # The topic was deleted before this transaction, so the append fails.
                    break
                changes[number] = offset + 1
                encoded = _encode(properties).decode() if properties else None
                row = (position(number, offset), message_id, key, tag, encoded, now_ms, body)
                self._rows.append((topic, queue, row))
                stored.append(Stored(queue.name, offset, stored_at))
        rows = [row for _, _, row in self._rows]
        for start in range(0, len(rows), _MAX_ROWS):
            chunk = rows[start : start + _MAX_ROWS]
            transaction.defer(_insert(len(chunk)), tuple(chain.from_iterable(chunk)))
        ends.count(transaction, rows)
        ends.record(transaction, _RECORD_INTERVAL_MS)

    def succeed(self, _: None) -> None:
        self._appender.fault = None
        self._appender.appended(self._rows)
        for append, stored in zip(self.appends or (), self._stored, strict=True):
            if append.result.done():
                continue
            if len(stored) == len(append.drafts):
                append.result.set_result(stored)
            else:
                name = append.topic.name
                append.result.set_exception(TopicNotFound(f"Topic {name} was deleted. Register it again.", topic=name))

    def fail(self, error: BaseException) -> None:
        if isinstance(error, MqgateError):
            self._appender.fault = error
        for append in self.appends or ():
            if not append.result.done():
                append.result.set_exception(error)


@cache
def _insert(rows: int) -> str:
    """Return the statement for a number of rows. The same text is prepared only once."""
    return _INSERT + ", ".join((_VALUES,) * rows)
