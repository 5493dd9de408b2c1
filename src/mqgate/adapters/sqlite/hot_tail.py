"""The newest messages of all queues in memory, so that a receive behind a live producer reads no SQL.

A row enters the tail of its queue after its commit, in the thread of the event loop. Each tail contains consecutive
offsets up to the end of its queue, so each read is served either by the tail or by the database. All tails share one
limit. Above it, the oldest rows are removed first, whatever their queue. After a restart, all tails are empty.

A tail stores the values of the INSERT statement, so that messages are built in the same way as from the database.
"""

from collections import deque
from collections.abc import Iterable

from mqgate.adapters.sqlite.message_rows import Row, limited

__all__ = ["HotTail", "QueueTail"]

# The memory of a row without its body and its texts: the tuple, its integers, the id and its entries in two deques.
_ROW_BYTES = 400


class QueueTail:
    """The rows of one queue from offset `first` to its end."""

    __slots__ = ("first", "removed", "rows")

    def __init__(self, first: int) -> None:
        self.first = first
        self.rows: deque[Row] = deque()
        # Rows that were removed before their turn, and are still counted in the order of removal.
        self.removed = 0

    def read(self, offset: int, max_count: int, max_bytes: int) -> list[Row] | None:
        """Return the rows from an offset on, at least one, or None if the tail does not contain the first one."""
        start = offset - self.first
        if not 0 <= start < len(self.rows):
            return None
        return limited(map(self.rows.__getitem__, range(start, min(start + max_count, len(self.rows)))), max_bytes)


class HotTail:
    """The rows of all tails. `size_bytes` is an estimate of their memory, and never exceeds `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_entries = max_bytes // _ROW_BYTES
        # For each row its tail, in the order of the commits.
        self._order: deque[QueueTail] = deque()
        self.size_bytes = 0
        self.count = 0

    def add(self, rows: Iterable[tuple[QueueTail, Row]]) -> None:
        """Add committed rows, in the order of their offsets, to the tails of their queues."""
        size_bytes, order = self.size_bytes, self._order
        before = len(order)
        for tail, row in rows:
            tail.rows.append(row)
            size_bytes += _size(row)
            order.append(tail)
        self.size_bytes = size_bytes
        self.count += len(order) - before
        while self.size_bytes > self._max_bytes or len(order) > self._max_entries:
            oldest = order.popleft()
            if oldest.removed:
                oldest.removed -= 1
            else:
                self._remove_first(oldest)

    def trim(self, tail: QueueTail, first: int) -> None:
        """Remove the rows before an offset, which retention has deleted."""
        while tail.rows and tail.first < first:
            self._remove_first(tail)
            tail.removed += 1

    def clear(self, tail: QueueTail) -> None:
        """Remove all rows of a deleted queue."""
        self.trim(tail, tail.first + len(tail.rows))

    def _remove_first(self, tail: QueueTail) -> None:
        self.size_bytes -= _size(tail.rows.popleft())
        tail.first += 1
        self.count -= 1


def _size(row: Row) -> int:
    _, _, key, tag, properties, _, body = row
    return _ROW_BYTES + len(body) + len(key or "") + len(tag or "") + len(properties or "")
