"""Offset ranges of a batch: what it reads, how tasks divide it, and what was deleted before it was read.

Positions are *next* offsets by topic and queue. They are plain dicts, as stored in the checkpoint of Spark. A queue
that is missing in the start positions is new and is read from its beginning. An end below its start means that the
queue was recreated: it is read from its beginning.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from mqgate.spark.log import Ends

__all__ = ["Loss", "OffsetRange", "Positions", "limit_end", "plan_ranges", "size", "split_ranges"]

Positions = dict[str, dict[str, int]]
AllEnds = Mapping[str, Mapping[str, Ends]]


class OffsetRange(NamedTuple):
    """Messages [start, end) of a queue."""

    topic: str
    queue: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Loss(NamedTuple):
    """Messages of a queue that can no longer be read: how many (0 if unknown), and why."""

    topic: str
    queue: str
    lost: int
    why: str

    def __str__(self) -> str:
        return f"{self.lost or 'an unknown number of'} messages of {self.topic} {self.queue}: {self.why}"


def size(start: Positions, end: Positions, ends: AllEnds) -> int:
    """Return the number of messages between two positions."""
    return sum(offsets.size for offsets in _pending_ranges(start, end, ends))


def limit_end(start: Positions, end: Positions, ends: AllEnds, max_messages: int) -> Positions:
    """Return an earlier end, so that a batch has at most `max_messages` messages.

    Every queue with messages gets at least one, so that short queues do not wait for long ones. The rest is divided in
    proportion to the backlog.
    """
    # Longest first, in case `max_messages` is smaller than the number of queues.
    pending = sorted(_pending_ranges(start, end, ends), key=lambda offsets: -offsets.size)
    total = sum(offsets.size for offsets in pending)
    if total <= max_messages:
        return end
    first_messages = min(max_messages, len(pending))
    rest, beyond = max_messages - first_messages, max(total - len(pending), 1)
    shares = [(index < first_messages) + (offsets.size - 1) * rest // beyond for index, offsets in enumerate(pending)]
    # The remainder of the rounding is given to the first queues, up to their size.
    left = max_messages - sum(shares)
    for index, offsets in enumerate(pending):
        more = min(left, offsets.size - shares[index])
        shares[index] += more
        left -= more
    limited = {topic: dict(queues) for topic, queues in end.items()}
    for share, offsets in zip(shares, pending, strict=True):
        if share:
            limited[offsets.topic][offsets.queue] = offsets.start + share
        elif offsets.queue in start.get(offsets.topic, {}):
            limited[offsets.topic][offsets.queue] = start[offsets.topic][offsets.queue]
        else:
            del limited[offsets.topic][offsets.queue]
    return limited


def plan_ranges(start: Positions, end: Positions, ends: AllEnds) -> tuple[list[OffsetRange], list[Loss]]:
    """Return the ranges that a batch can read, and the losses."""
    ranges, losses = [], []
    for topic, queue, low, high in _pending_ranges(start, end, ends):
        if queue not in ends.get(topic, {}):
            losses.append(Loss(topic, queue, high - low, "the queue no longer exists"))
            continue
        kept = ends[topic][queue]
        if _is_recreated(start, topic, queue, high):
            losses.append(Loss(topic, queue, 0, f"the queue was recreated, and is read from offset {low}"))
        first, last = min(max(low, kept.min), high), max(min(high, kept.max), low)
        if first > low:
            losses.append(Loss(topic, queue, first - low, f"offsets {low} to {first - 1} were deleted by retention"))
        if last < high:
            losses.append(
                Loss(topic, queue, high - last, f"it ends at offset {kept.max}, not {high}: it may have been recreated")
            )
        if first < last:
            ranges.append(OffsetRange(topic, queue, first, last))
    return ranges, losses


def split_ranges(
    ranges: Sequence[OffsetRange],
    *,
    min_tasks: int | None = None,
    max_tasks: int | None = None,
    max_rows: int | None = None,
) -> list[list[OffsetRange]]:
    """Return the ranges of each task: by default one task per range.

    With `min_tasks`, long ranges are split in proportion if there are enough messages. No piece is longer than
    `max_rows`. With `max_tasks`, pieces are combined so that the tasks have about equal work.
    """
    pieces = [piece for offsets in ranges for piece in _pieces(offsets, _count(offsets, ranges, min_tasks, max_rows))]
    if max_tasks is None or len(pieces) <= max_tasks:
        return [[piece] for piece in pieces]
    tasks: list[list[OffsetRange]] = [[] for _ in range(max_tasks)]
    work = [0] * max_tasks
    for piece in sorted(pieces, key=lambda offsets: (-offsets.size, offsets)):
        index = work.index(min(work))
        tasks[index].append(piece)
        work[index] += piece.size
    return [sorted(task) for task in tasks]


def _count(offsets: OffsetRange, ranges: Sequence[OffsetRange], min_tasks: int | None, max_rows: int | None) -> int:
    count = 1
    if min_tasks is not None and min_tasks > len(ranges):
        total = sum(other.size for other in ranges)
        count = -(-offsets.size * min_tasks // total)
    if max_rows is not None:
        count = max(count, -(-offsets.size // max_rows))
    return min(count, offsets.size)


def _pieces(whole: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [whole._replace(start=low, end=high) for low, high in pairwise(bounds)]


def _pending_ranges(start: Positions, end: Positions, ends: AllEnds) -> list[OffsetRange]:
    """Return the range of every queue that has messages between two positions."""
    pending = []
    for topic, queues in sorted(end.items()):
        for queue, high in sorted(queues.items()):
            low = start.get(topic, {}).get(queue)
            if low is None or low > high:
                kept = ends.get(topic, {}).get(queue)
                low = min(kept.min if kept else 0, high)
            if low < high:
                pending.append(OffsetRange(topic, queue, low, high))
    return pending


def _is_recreated(start: Positions, topic: str, queue: str, high: int) -> bool:
    return start.get(topic, {}).get(queue, 0) > high
