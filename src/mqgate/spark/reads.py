"""Code that batch and streaming reads share: one log per process, resolving bounds, and reading ranges.

It runs in three kinds of process: the planner, the offset manager of a stream, and the workers. They exchange only
options, positions and ranges.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from mqgate.spark.columns import RowFormat
from mqgate.spark.log import Ends, Log, LogError, TopicMissing
from mqgate.spark.offset_ranges import Loss, OffsetRange, Positions
from mqgate.spark.options import Bound, Connection, OptionInvalid, Selection, SourceOptions

__all__ = ["DataLost", "Task", "all_ends", "open_log", "read", "report", "resolve_bound"]

_EARLIEST, _LATEST = -2, -1
_CACHE_EXPIRY_SECONDS = 1.5
_log = logging.getLogger(__name__)


class DataLost(LogError):
    """Messages were deleted before they were read."""


class Task(InputPartition):
    """The ranges that one task reads in sequence."""

    def __init__(self, ranges: list[OffsetRange]) -> None:
        super().__init__(None)
        self.ranges = ranges


@cache
def open_log(connection: Connection) -> Log:
    """Return the log of this process for a connection. Workers reuse it for their next tasks."""
    if connection.transport == "rocketmq":
        from mqgate.spark.rocketmq_log import RocketMQLog  # noqa: PLC0415 - imports asyncio and the RocketMQ client

        options: dict[str, Any] = dict(connection.rocketmq)
        return RocketMQLog(
            options.pop("name_servers"), timeout=connection.timeout, retries=connection.retries, **options
        )
    from mqgate.spark.http_log import HttpLog  # noqa: PLC0415 - imports the HTTP client

    return HttpLog(connection.urls, key=connection.key, timeout=connection.timeout, retries=connection.retries)


def all_ends(log: Log, selection: Selection, known_positions: Positions) -> dict[str, dict[str, Ends]]:
    """Return the bounds of all queues that are selected now.

    A queue that ends before a known position was recreated, or the gateway returned a cached end: each gateway caches
    ends for half a second. Therefore the ends are read again after a pause.
    """
    ends = _ends(log, selection)
    if any(
        ends[topic][queue].max < offset
        for topic, queues in known_positions.items()
        for queue, offset in queues.items()
        if queue in ends.get(topic, {})
    ):
        time.sleep(_CACHE_EXPIRY_SECONDS)
        ends = _ends(log, selection)
    return ends


def _ends(log: Log, selection: Selection) -> dict[str, dict[str, Ends]]:
    if selection.queues is not None:
        return {topic: _assigned(topic, queues, log.ends(topic)) for topic, queues in selection.queues.items()}
    topics: Iterable[str] = selection.topics
    if selection.pattern is not None:
        topics = [topic for topic in log.topics() if re.fullmatch(selection.pattern, topic)]
    return {topic: log.ends(topic) for topic in topics}


def _assigned(topic: str, queues: Iterable[str], ends: Mapping[str, Ends]) -> dict[str, Ends]:
    for queue in queues:
        if queue not in ends:
            raise TopicMissing(f"option assign: {topic} has no queue {queue}, it has {', '.join(sorted(ends))}")
    return {queue: ends[queue] for queue in queues}


def resolve_bound(log: Log, bound: Bound, ends: Mapping[str, Mapping[str, Ends]], options: SourceOptions) -> Positions:
    """Return the offsets of a bound."""
    if bound.kind in {"offsets", "instants"}:
        _check_complete(bound, ends)
    return {topic: _resolve_in_topic(log, bound, topic, dict(queues), options) for topic, queues in ends.items()}


def _resolve_in_topic(
    log: Log, bound: Bound, topic: str, ends: Mapping[str, Ends], options: SourceOptions
) -> dict[str, int]:
    if bound.kind == "earliest":
        return {queue: queue_ends.min for queue, queue_ends in ends.items()}
    if bound.kind == "latest":
        return {queue: queue_ends.max for queue, queue_ends in ends.items()}
    if bound.kind == "committed":
        assert options.group is not None  # noqa: S101 - options.parse() requires the group
        committed = log.committed(topic, options.group)
        return {queue: committed.get(queue, queue_ends.min) for queue, queue_ends in ends.items()}
    if bound.kind == "instant":
        assert bound.instant_ms is not None  # noqa: S101 - set for this kind
        return _at_instants(log, bound, topic, ends, dict.fromkeys(ends, bound.instant_ms))
    assert bound.by_queue is not None  # noqa: S101 - set for this kind
    given = bound.by_queue[topic]
    if bound.kind == "instants":
        return _at_instants(log, bound, topic, ends, given)
    words = {queue: {_EARLIEST: queue_ends.min, _LATEST: queue_ends.max} for queue, queue_ends in ends.items()}
    return {queue: words[queue].get(given[queue], given[queue]) for queue in ends}


def _at_instants(
    log: Log, bound: Bound, topic: str, ends: Mapping[str, Ends], instants: Mapping[str, int]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for at_ms in set(instants.values()):
        offsets = log.offsets_at(topic, at_ms)
        found |= {queue: offsets[queue] for queue in ends if instants[queue] == at_ms}
    none = sorted(queue for queue, offset in found.items() if offset >= ends[queue].max)
    if none and not bound.is_latest_if_none:
        raise OptionInvalid(
            f"{topic} {', '.join(none)} has no message at that time or later: start earlier, or set option "
            "startingOffsetsByTimestampStrategy to latest"
        )
    return found


def _check_complete(bound: Bound, ends: Mapping[str, Mapping[str, Ends]]) -> None:
    """Raise OptionInvalid unless the bound names every selected queue and no other."""
    given = {(topic, queue) for topic, queues in (bound.by_queue or {}).items() for queue in queues}
    selected = {(topic, queue) for topic, queues in ends.items() for queue in queues}
    for word, wrong in (("do not name", selected - given), ("name queues that are not selected:", given - selected)):
        if wrong:
            names = ", ".join(f"{topic} {queue}" for topic, queue in sorted(wrong))
            raise OptionInvalid(f"the given {bound.kind} {word} {names}")


def report(losses: Iterable[Loss], *, is_fatal: bool) -> None:
    """Raise DataLost, or log a warning for each loss."""
    texts = [str(loss) for loss in losses]
    if texts and is_fatal:
        raise DataLost(
            f"messages deleted before they were read: {'; '.join(texts)}. Increase the retention, or set option "
            "failOnDataLoss to false to continue without them"
        )
    for text in texts:
        _log.warning("messages deleted before they were read: %s", text)


def read(log: Log, row_format: RowFormat, task: Task, *, is_loss_fatal: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the ranges of a task."""
    fields = row_format.fields if "offset" in row_format.fields else (*row_format.fields, "offset")
    for topic, queue, start, end in task.ranges:
        at = start
        while at < end:
            for batch in log.read(topic, queue, at, end, fields):
                next_offset = batch.column("offset")[-1].as_py() + 1
                if lost := next_offset - at - batch.num_rows:
                    # Retention deletes only from the beginning of a queue, so these messages were lost otherwise.
                    loss = Loss(topic, queue, lost, f"messages are missing from offset {at} to {next_offset}")
                    report([loss], is_fatal=is_loss_fatal)
                yield row_format.rows(topic, queue, at, batch)
                at = next_offset
            if at < end:
                # The messages were deleted, or the topic was recreated, between planning and reading.
                kept = log.ends(topic).get(queue, Ends(end, end))
                next_offset = min(kept.min, end) if at < kept.min else end
                report(
                    [Loss(topic, queue, next_offset - at, f"no message exists at offset {at}")], is_fatal=is_loss_fatal
                )
                at = next_offset
