"""The arithmetic of offsets: what a batch reads, in which pieces, and what it cannot read any more.

Positions are *next* offsets by topic and queue, plain dicts, as they stand in Spark's checkpoint. A queue that the
start does not know is new, and is read from its beginning. An end below its start means that the queue was made anew:
what it holds now is read from its beginning.
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
    """Messages of a queue that can no longer be read; how many (0: nobody knows), and why."""

    topic: str
    queue: str
    lost: int
    why: str

    def __str__(self) -> str:
        return f"{self.lost or 'an unknown number of'} messages of {self.topic} {self.queue}: {self.why}"


def size(start: Positions, end: Positions, ends: AllEnds) -> int:
    """How many messages lie between two positions."""
    return sum(each.size for each in _spans(start, end, ends))


def limit_end(start: Positions, end: Positions, ends: AllEnds, most: int) -> Positions:
    """An earlier end, so that at most so many messages lie before it.

    Every queue that has something gets its part: one message at least, so that a short queue need not wait until the
    long ones are read, and the more the further it is behind.
    """
    # The longest first, should `most` not suffice for all.
    spans = sorted(_spans(start, end, ends), key=lambda each: -each.size)
    total = sum(each.size for each in spans)
    if total <= most:
        return end
    ones = min(most, len(spans))
    rest, beyond = most - ones, max(total - len(spans), 1)
    shares = [(place < ones) + (each.size - 1) * rest // beyond for place, each in enumerate(spans)]
    # What rounding left goes to the first; none gets more than it has.
    left = most - sum(shares)
    for place, each in enumerate(spans):
        more = min(left, each.size - shares[place])
        shares[place] += more
        left -= more
    cut_short = {topic: dict(queues) for topic, queues in end.items()}
    for share, each in zip(shares, spans, strict=True):
        if share:
            cut_short[each.topic][each.queue] = each.start + share
        elif each.queue in start.get(each.topic, {}):
            cut_short[each.topic][each.queue] = start[each.topic][each.queue]
        else:
            del cut_short[each.topic][each.queue]
    return cut_short


def plan_ranges(start: Positions, end: Positions, ends: AllEnds) -> tuple[list[OffsetRange], list[Loss]]:
    """What a batch can read, and what of it is gone."""
    ranges, losses = [], []
    for topic, queue, low, high in _spans(start, end, ends):
        if queue not in ends.get(topic, {}):
            losses.append(Loss(topic, queue, high - low, "the queue is gone"))
            continue
        kept = ends[topic][queue]
        if _is_anew(start, topic, queue, high):
            losses.append(Loss(topic, queue, 0, f"it was made anew, and is read from offset {low}"))
        first, last = min(max(low, kept.min), high), max(min(high, kept.max), low)
        if first > low:
            losses.append(Loss(topic, queue, first - low, f"offsets {low} to {first - 1} are gone by retention"))
        if last < high:
            losses.append(Loss(topic, queue, high - last, f"it ends at offset {kept.max}, not {high}: made anew?"))
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
    """The ranges of each task: as many tasks as ranges, unless told otherwise.

    `min_tasks` tasks where there are messages enough, long ranges cut in proportion; no piece longer than `max_rows`;
    never more than `max_tasks` tasks, the pieces dealt out so that the tasks have about equal work.
    """
    pieces = [piece for each in ranges for piece in _pieces(each, _count(each, ranges, min_tasks, max_rows))]
    if max_tasks is None or len(pieces) <= max_tasks:
        return [[piece] for piece in pieces]
    tasks: list[list[OffsetRange]] = [[] for _ in range(max_tasks)]
    work = [0] * max_tasks
    for piece in sorted(pieces, key=lambda each: (-each.size, each)):
        place = work.index(min(work))
        tasks[place].append(piece)
        work[place] += piece.size
    return [sorted(task) for task in tasks]


def _count(each: OffsetRange, ranges: Sequence[OffsetRange], min_tasks: int | None, max_rows: int | None) -> int:
    count = 1
    if min_tasks is not None and min_tasks > len(ranges):
        total = sum(other.size for other in ranges)
        count = -(-each.size * min_tasks // total)
    if max_rows is not None:
        count = max(count, -(-each.size // max_rows))
    return min(count, each.size)


def _pieces(whole: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * place // count for place in range(count + 1)]
    return [whole._replace(start=low, end=high) for low, high in pairwise(bounds)]


def _spans(start: Positions, end: Positions, ends: AllEnds) -> list[OffsetRange]:
    """Every queue that has something between two positions, wherever it begins."""
    spans = []
    for topic, queues in sorted(end.items()):
        for queue, high in sorted(queues.items()):
            low = start.get(topic, {}).get(queue)
            if low is None or low > high:
                kept = ends.get(topic, {}).get(queue)
                low = min(kept.min if kept else 0, high)
            if low < high:
                spans.append(OffsetRange(topic, queue, low, high))
    return spans


def _is_anew(start: Positions, topic: str, queue: str, high: int) -> bool:
    return start.get(topic, {}).get(queue, 0) > high
