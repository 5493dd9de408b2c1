"""Streaming reads: what came since the last batch, and no more than asked.

The object that answers for offsets lives in one process, those that read in others. Spark keeps the positions: a
batch that is repeated after a crash is planned from exactly the positions it had.
"""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mqgate.spark.columns import shape_of
from mqgate.spark.log import Ends, Log
from mqgate.spark.offset_ranges import Loss, Positions, limit_end, plan_ranges, size, split_ranges
from mqgate.spark.options import SourceOptions
from mqgate.spark.reads import Task, all_ends, open_log, read, report, resolve_bound

__all__ = ["StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._shape = shape_of(schema, options.properties, is_undecodable_null=options.is_undecodable_null)
        # Where an AvailableNow query stops; none: it does not.
        self._target: Positions | None = None
        self._batch_at = time.monotonic()
        self._committed: Positions | None = None

    def initialOffset(self) -> Positions:  # noqa: N802 - Spark's name
        log, ends = self._read_ends()
        return resolve_bound(log, self._options.starting, ends, self._options)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = _tops(self._read_ends()[1])

    def reportLatestOffset(self) -> Positions:  # noqa: N802 - Spark's name
        """Where the queues end, whatever was read: the lag of each is the difference to the batch's end."""
        return _tops(self._read_ends()[1])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Positions:  # noqa: N802 - Spark's name
        """Where the next batch ends; at `start` if there is to be none."""
        log, ends = self._read_ends(start)
        # Spark asks when the batch before is done, also after the last one of an AvailableNow query; its own word for
        # that, `commit`, comes a batch later or never.
        self._commit(log, start)
        tops = _tops(ends)
        vanished = [
            Loss(topic, queue, 0, "the queue is gone")
            for topic, queues in start.items()
            for queue in queues
            if queue not in ends.get(topic, {})
        ]
        report(vanished, is_fatal=self._options.is_loss_fatal)
        end = _kept(start, tops if self._target is None else _up_to(tops, self._target))
        if not self._is_due(size(start, end, ends)):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limit_end(start, end, ends, limit.max_rows)
        self._batch_at = time.monotonic()
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch; what it should have read and is gone is a loss."""
        options = self._options
        ranges, losses = plan_ranges(start, end, self._read_ends(end)[1])
        report(losses, is_fatal=options.is_loss_fatal)
        tasks = split_ranges(
            ranges, min_tasks=options.min_partitions, max_tasks=options.max_partitions, max_rows=options.max_rows
        )
        return [Task(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows, on a worker."""
        assert isinstance(partition, Task)  # noqa: S101 - we made it
        log = open_log(self._options.connection)
        return read(log, self._shape, partition, is_loss_fatal=self._options.is_loss_fatal)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the next question for the latest offset says the same, and says it always."""

    def stop(self) -> None:
        """Nothing is held that the end of the process does not free."""

    def _read_ends(self, at_least: Positions | None = None) -> tuple[Log, dict[str, dict[str, Ends]]]:
        log = open_log(self._options.connection)
        return log, all_ends(log, self._options.selection, at_least or {})

    def _is_due(self, available: int) -> bool:
        options = self._options
        if not options.min_offsets or self._target is not None or available >= options.min_offsets:
            return True
        return available > 0 and time.monotonic() - self._batch_at >= options.max_delay.total_seconds()

    def _commit(self, log: Log, done: Positions) -> None:
        if self._options.is_committing and self._options.group and done != self._committed:
            for topic, offsets in done.items():
                log.commit(topic, self._options.group, offsets)
            self._committed = done


def _tops(ends: dict[str, dict[str, Ends]]) -> Positions:
    return {
        topic: {queue: each.max for queue, each in sorted(queues.items())} for topic, queues in sorted(ends.items())
    }


def _up_to(tops: Positions, target: Positions) -> Positions:
    """Ends that stay at a target: later messages, and queues that are newer, are left to the next run."""
    return {
        topic: {queue: min(offset, target[topic][queue]) for queue, offset in queues.items() if queue in target[topic]}
        for topic, queues in tops.items()
        if topic in target
    }


def _kept(start: Positions, end: Positions) -> Positions:
    """An end that forgets no queue: one that is not there now keeps its position."""
    return {topic: start.get(topic, {}) | end.get(topic, {}) for topic in sorted(start.keys() | end.keys())}
