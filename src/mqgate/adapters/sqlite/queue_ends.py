"""The end of each queue, as the writing thread knows it.

The next offset of a queue is the one after its last row. The writer keeps it in memory, so that offsets are dense
whatever fails. Appends update the rows of the table `queue` at most once a second, and jobs that rely on these rows
update them first. After a crash, the end of a queue is read from its messages.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mqgate.adapters.sqlite.message_rows import SQL, Row, number_of, offset_of, position
from mqgate.adapters.sqlite.threads import Transaction, View

__all__ = ["QueueEnds", "StoredQueue", "stored_queues"]


class StoredQueue(NamedTuple):
    """A queue in the database. `unrecorded_bytes`: the size of the messages that its row does not include."""

    topic: str
    queue_id: int
    number: int
    min_offset: int
    next_offset: int
    unrecorded_bytes: int
    last_append_ms: int


def stored_queues(view: View) -> list[StoredQueue]:
    """Read all queues. The process may have stopped before it updated their rows."""
    found = []
    for topic, queue_id, number, min_offset, recorded in view.all(SQL["all_queues"]):
        last, size = view.one(SQL["unrecorded"], (position(number, recorded), position(number + 1, 0) - 1))
        end = recorded if last is None else offset_of(last) + 1
        newest = view.one(SQL["stored_at"], (position(number, end - 1),))
        found.append(StoredQueue(topic, queue_id, number, min_offset, end, size or 0, newest[0] if newest else 0))
    return found


class QueueEnds:
    """Next offsets, and the bytes that the rows of the queues do not include yet, by queue number."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._unrecorded: dict[int, int] = {}
        self._recorded_ms = 0

    def load(self, queue: StoredQueue) -> None:
        self._next[queue.number] = queue.next_offset
        if queue.unrecorded_bytes:
            self._unrecorded[queue.number] = queue.unrecorded_bytes

    def changes(self, transaction: Transaction) -> dict[int, int | None]:
        """Return the next offsets that this transaction changes. They become valid with its commit."""
        changes: dict[int, int | None] | None = transaction.drafts.get(QueueEnds)
        if changes is None:
            changes = transaction.drafts[QueueEnds] = {}
            transaction.on_commit.append(lambda: self._apply(changes))
        return changes

    def next_offset(self, number: int) -> int | None:
        """Return the next offset of a queue as of the last commit, or None if there is no such queue."""
        return self._next.get(number)

    def count(self, transaction: Transaction, rows: Sequence[Row]) -> None:
        """Count rows that this transaction inserts."""
        transaction.on_commit.append(lambda: self._count(rows))

    def record(self, transaction: Transaction, interval_ms: int = 0) -> None:
        """Update the rows of the queues, unless that was done less than `interval_ms` ago."""
        is_recorded = QueueEnds.record in transaction.drafts
        if is_recorded or not self._unrecorded or transaction.now_ms < self._recorded_ms + interval_ms:
            return
        transaction.drafts[QueueEnds.record] = True
        recorded = dict(self._unrecorded)
        for number, size in recorded.items():
            transaction.execute(SQL["record_end"], (self._next[number], size, number))

        def forget() -> None:
            self._recorded_ms = transaction.now_ms
            for number in recorded:
                self._unrecorded.pop(number, None)

        # Before the rows of this transaction are counted: the rows of the queues do not include them.
        transaction.on_commit.insert(0, forget)

    def _apply(self, changes: dict[int, int | None]) -> None:
        for number, next_offset in changes.items():
            if next_offset is None:
                self._next.pop(number, None)
                self._unrecorded.pop(number, None)
            else:
                self._next[number] = next_offset

    def _count(self, rows: Sequence[Row]) -> None:
        unrecorded = self._unrecorded
        for row in rows:
            number = number_of(row[0])
            # The same transaction may have deleted the queue.
            if number in self._next:
                unrecorded[number] = unrecorded.get(number, 0) + len(row[6]) + len(row[4] or "")
