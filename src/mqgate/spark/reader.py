"""Batch reads: the messages between two bounds, resolved when the query is planned."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqgate.spark.columns import row_format_of
from mqgate.spark.offset_ranges import Positions, plan_ranges, split_ranges
from mqgate.spark.options import Bound, SourceOptions
from mqgate.spark.reads import Task, all_ends, open_log, read, report, resolve_bound

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._row_format = row_format_of(schema, options.properties, is_undecodable_null=options.is_undecodable_null)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Requested offsets that no longer exist are reported as a loss."""
        options = self._options
        log = open_log(options.connection)
        ends = all_ends(log, options.selection, _offsets(options.starting) | _offsets(options.ending))
        start = resolve_bound(log, options.starting, ends, options)
        end = resolve_bound(log, options.ending, ends, options)
        ranges, losses = plan_ranges(start, _not_before(start, end), ends)
        report(losses, is_fatal=options.is_loss_fatal)
        tasks = split_ranges(
            ranges, min_tasks=options.min_partitions, max_tasks=options.max_partitions, max_rows=options.max_rows
        )
        return [Task(ranges) for ranges in tasks or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task, on a worker."""
        assert isinstance(partition, Task)  # noqa: S101 - created by partitions()
        log = open_log(self._options.connection)
        return read(log, self._row_format, partition, is_loss_fatal=self._options.is_loss_fatal)


def _offsets(bound: Bound) -> Positions:
    return bound.by_queue or {} if bound.kind == "offsets" else {}


def _not_before(start: Positions, end: Positions) -> Positions:
    """Return an end that is not before the start. In a stream, that would mean a recreated queue."""
    return {
        topic: {queue: max(offset, start[topic][queue]) for queue, offset in queues.items()}
        for topic, queues in end.items()
    }
