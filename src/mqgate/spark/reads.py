"""What batch and streaming reads share: a log per process, where bounds lie, and reading a task's ranges.

Code here runs in three kinds of process: the one that plans, the one that answers for a stream, and the workers.
Nothing passes between them but options, positions and ranges.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from mqgate.spark.columns import Shape
from mqgate.spark.log import Ends, Log, LogError, TopicMissing
from mqgate.spark.offset_ranges import Loss, OffsetRange, Positions
from mqgate.spark.options import Bound, Connection, OptionInvalid, Selection, SourceOptions

__all__ = ["DataLost", "Task", "all_ends", "open_log", "read", "report", "resolve_bound"]

_EARLIEST, _LATEST = -2, -1
_LONGER_THAN_REMEMBERED = 1.5
_log = logging.getLogger(__name__)


class DataLost(LogError):
    """Messages are gone that should have been read."""


class Task(InputPartition):
    """The ranges that one task reads, one after the other."""

    def __init__(self, ranges: list[OffsetRange]) -> None:
        super().__init__(None)
        self.ranges = ranges


@cache
def open_log(connection: Connection) -> Log:
    """The process's log of this connection: workers live on from task to task, and so do their connections."""
    if connection.transport == "rocketmq":
        from mqgate.spark.rocketmq_log import RocketMQLog  # noqa: PLC0415 - asyncio and a client, only where they serve

        options: dict[str, Any] = dict(connection.rocketmq)
        return RocketMQLog(
            options.pop("name_servers"), timeout=connection.timeout, retries=connection.retries, **options
        )
    from mqgate.spark.http_log import HttpLog  # noqa: PLC0415 - the same of HTTP: whoever only names a source has no log

    return HttpLog(connection.urls, key=connection.key, timeout=connection.timeout, retries=connection.retries)


def all_ends(log: Log, selection: Selection, at_least: Positions) -> dict[str, dict[str, Ends]]:
    """The ends of all queues that are selected now.

    A queue that ends before a position we have seen was made anew, or we were told an old end: gateways remember ends
    for half a second, and each its own. So we look once more after a while before we believe it.
    """
    ends = _ends(log, selection)
    if any(
        ends[topic][queue].max < offset
        for topic, queues in at_least.items()
        for queue, offset in queues.items()
        if queue in ends.get(topic, {})
    ):
        time.sleep(_LONGER_THAN_REMEMBERED)
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
    """The offsets that a bound stands for now."""
    if bound.kind in {"offsets", "instants"}:
        _check_complete(bound, ends)
    return {topic: _located_in(log, bound, topic, dict(queues), options) for topic, queues in ends.items()}


def _located_in(log: Log, bound: Bound, topic: str, ends: Mapping[str, Ends], options: SourceOptions) -> dict[str, int]:
    if bound.kind == "earliest":
        return {queue: each.min for queue, each in ends.items()}
    if bound.kind == "latest":
        return {queue: each.max for queue, each in ends.items()}
    if bound.kind == "committed":
        assert options.group is not None  # noqa: S101 - checked with the options
        stands = log.committed(topic, options.group)
        return {queue: stands.get(queue, each.min) for queue, each in ends.items()}
    if bound.kind == "instant":
        assert bound.instant_ms is not None  # noqa: S101 - what the kind says
        return _at_instants(log, bound, topic, ends, dict.fromkeys(ends, bound.instant_ms))
    assert bound.by_queue is not None  # noqa: S101 - what the kind says
    given = bound.by_queue[topic]
    if bound.kind == "instants":
        return _at_instants(log, bound, topic, ends, given)
    words = {queue: {_EARLIEST: each.min, _LATEST: each.max} for queue, each in ends.items()}
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
            f"{topic} {', '.join(none)} has no message at that time or later: begin earlier, or set option "
            "startingOffsetsByTimestampStrategy to latest"
        )
    return found


def _check_complete(bound: Bound, ends: Mapping[str, Mapping[str, Ends]]) -> None:
    """Every queue must be told: one that was forgotten would be read from anywhere."""
    given = {(topic, queue) for topic, queues in (bound.by_queue or {}).items() for queue in queues}
    there = {(topic, queue) for topic, queues in ends.items() for queue in queues}
    for word, wrong in (("lack", there - given), ("name what is not selected:", given - there)):
        if wrong:
            told = ", ".join(f"{topic} {queue}" for topic, queue in sorted(wrong))
            raise OptionInvalid(f"the given {bound.kind} {word} {told}")


def report(losses: Iterable[Loss], *, is_fatal: bool) -> None:
    """Fail because of what is gone, or warn with its number."""
    told = [str(loss) for loss in losses]
    if told and is_fatal:
        raise DataLost(
            f"gone before it was read: {'; '.join(told)}. Keep messages longer, or set option failOnDataLoss to false "
            "to go on without them"
        )
    for each in told:
        _log.warning("gone before it was read, going on without: %s", each)


def read(log: Log, shape: Shape, task: Task, *, is_loss_fatal: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a task's ranges."""
    fields = shape.fields if "offset" in shape.fields else (*shape.fields, "offset")
    for topic, queue, start, end in task.ranges:
        at = start
        while at < end:
            for batch in log.read(topic, queue, at, end, fields):
                goes_on = batch.column("offset")[-1].as_py() + 1
                if lost := goes_on - at - batch.num_rows:
                    # Somebody deleted them: retention takes none out of the middle.
                    hole = Loss(topic, queue, lost, f"not all is there from offset {at} to {goes_on}")
                    report([hole], is_fatal=is_loss_fatal)
                yield shape.rows(topic, queue, at, batch)
                at = goes_on
            if at < end:
                # Retention, or a topic made anew, came between planning and reading.
                kept = log.ends(topic).get(queue, Ends(end, end))
                goes_on = min(kept.min, end) if at < kept.min else end
                report([Loss(topic, queue, goes_on - at, f"nothing is at offset {at}")], is_fatal=is_loss_fatal)
                at = goes_on
