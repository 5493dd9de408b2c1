"""Streaming reads: the messages since the last batch, up to the configured limit.

One process manages the offsets, and worker processes read. Spark stores the positions, so a batch that is repeated
after a crash has exactly the same positions.
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

from mqgate.spark.columns import row_format_of
from mqgate.spark.log import Ends, Log
from mqgate.spark.offset_ranges import Loss, Positions, limit_end, plan_ranges, size, split_ranges
from mqgate.spark.options import SourceOptions
from mqgate.spark.reads import Task, all_ends, open_log, read, report, resolve_bound

__all__ = ["StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._row_format = row_format_of(schema, options.properties, is_undecodable_null=options.is_undecodable_null)
        # End of an AvailableNow query; None for other queries.
        self._target: Positions | None = None
        self._batch_at = time.monotonic()
        self._committed: Positions | None = None

    def initialOffset(self) -> Positions:  # noqa: N802 - Spark's name
        log, ends = self._read_ends()
        return resolve_bound(log, self._options.starting, ends, self._options)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = _latest(self._read_ends()[1])

    def reportLatestOffset(self) -> Positions:  # noqa: N802 - Spark's name
        """Return the ends of the queues. The difference to the end of the batch is the lag."""
        return _latest(self._read_ends()[1])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Positions:  # noqa: N802 - Spark's name
        """Return the end of the next batch, or `start` if no batch is due."""
        log, ends = self._read_ends(start)
        # Spark calls this after each batch, also after the last batch of an AvailableNow query. It calls `commit` one
        # batch later or never.
        self._commit(log, start)
        latest = _latest(ends)
        missing = [
            Loss(topic, queue, 0, "the queue no longer exists")
            for topic, queues in start.items()
            for queue in queues
            if queue not in ends.get(topic, {})
        ]
        report(missing, is_fatal=self._options.is_loss_fatal)
        end = _keep_missing_queues(start, latest if self._target is None else _limit_to_target(latest, self._target))
        if not self._is_due(size(start, end, ends)):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limit_end(start, end, ends, limit.max_rows)
        self._batch_at = time.monotonic()
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch. Offsets that no longer exist are reported as a loss."""
        options = self._options
        ranges, losses = plan_ranges(start, end, self._read_ends(end)[1])
        report(losses, is_fatal=options.is_loss_fatal)
        tasks = split_ranges(
            ranges, min_tasks=options.min_partitions, max_tasks=options.max_partitions, max_rows=options.max_rows
        )
        return [Task(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task, on a worker."""
        assert isinstance(partition, Task)  # noqa: S101 - created by partitions()
        log = open_log(self._options.connection)
        return read(log, self._row_format, partition, is_loss_fatal=self._options.is_loss_fatal)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the next call of latestOffset commits the offsets."""

    def stop(self) -> None:
        """Do nothing: the end of the process releases the connections."""

    def _read_ends(self, known: Positions | None = None) -> tuple[Log, dict[str, dict[str, Ends]]]:
        log = open_log(self._options.connection)
        return log, all_ends(log, self._options.selection, known or {})

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


def _latest(ends: dict[str, dict[str, Ends]]) -> Positions:
    return {
        topic: {queue: queue_ends.max for queue, queue_ends in sorted(queues.items())}
        for topic, queues in sorted(ends.items())
    }


def _limit_to_target(latest: Positions, target: Positions) -> Positions:
    """Limit ends to a target. The next run reads later messages and new queues."""
    return {
        topic: {queue: min(offset, target[topic][queue]) for queue, offset in queues.items() if queue in target[topic]}
        for topic, queues in latest.items()
        if topic in target
    }


def _keep_missing_queues(start: Positions, end: Positions) -> Positions:
    """Return an end that keeps the positions of queues that are missing now."""
    return {topic: start.get(topic, {}) | end.get(topic, {}) for topic in sorted(start.keys() | end.keys())}
