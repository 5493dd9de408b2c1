"""Writers of a frame to a topic. Spark calls them on the driver and in every task.

Spark creates a writer to plan a write and, for streams, to commit each batch. `write` runs on a pickled copy.
Therefore a writer contains only options, and a task reads its identity from the task context.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mqgate.spark.log import LogError
from mqgate.spark.publisher import Counts, Publisher
from mqgate.spark.sink_options import SinkOptions, check_append, check_columns, parse_sink
from mqgate.spark.sink_rows import chunks, rows

__all__ = ["BatchWriter", "StreamWriter", "Written", "batch_writer", "stream_writer"]

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """The result of a task."""

    counts: Counts = field(default_factory=Counts)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "BatchWriter":
    """Return a batch writer after checking the options, the columns and the permission."""
    found = _checked(options, schema, overwrite=overwrite, is_stream=False)
    return BatchWriter(found)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "StreamWriter":
    """Return a stream writer after checking the options, the columns and the permission."""
    found = _checked(options, schema, overwrite=overwrite, is_stream=True)
    return StreamWriter(found)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self.options, iterator, f"write {self.options.write_id}")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log.info("frame written: topic=%s %s", self.options.topic, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log_abort(self.options, messages, "write again with the same option writeId to add only the missing rows")


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise LogError("the task context has no query id and batch id: a repeated batch could not be detected")
        return _write(self.options, iterator, f"query {query} batch {batch}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _log.info("batch written: topic=%s batch=%d %s", self.options.topic, batchId, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _log_abort(self.options, messages, f"batch {batchId} adds only the missing rows when the query continues")


def _checked(options: Mapping[str, str], schema: StructType, *, overwrite: bool, is_stream: bool) -> SinkOptions:
    found = parse_sink(options, is_stream=is_stream)
    check_append(overwrite=overwrite, is_stream=is_stream)
    check_columns(schema)
    if is_stream:
        _check_once(found)
    else:
        Publisher(found).check()
    return found


@cache
def _check_once(options: SinkOptions) -> None:
    """Check once per process: a short outage of the gateway must not fail a batch that is already written."""
    Publisher(options).check()


def _write(options: SinkOptions, batches: Iterable[pa.RecordBatch], write_identity: str) -> Written:
    publisher = Publisher(options)
    written = Written()
    identity = f"{write_identity} partition {_context().partitionId()}"
    for chunk in chunks(rows(batches, identity), options.batch_size):
        written.counts += publisher.publish(chunk)
    return written


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise LogError("write can only run in a Spark task")
    return context


def _sum(messages: Sequence[WriterCommitMessage | None]) -> Counts:
    total = Counts()
    for message in messages:
        if isinstance(message, Written):
            total += message.counts
    return total


def _log_abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], remedy: str) -> None:
    _log.warning(
        "write failed: topic=%s, messages of completed tasks stay stored: %s; %s", options.topic, _sum(messages), remedy
    )
