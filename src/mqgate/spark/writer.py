"""A frame into a topic: what Spark calls on the driver, and in every task.

Spark makes a writer anew to plan a write and, of a stream, to commit each batch; `write` runs on a pickled copy. So a
writer holds options only, and a task learns from its context whose part it is.
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
    """What a task did."""

    counts: Counts = field(default_factory=Counts)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "BatchWriter":
    """A writer that was checked against its gateway."""
    found = _checked(options, schema, overwrite=overwrite, is_stream=False)
    return BatchWriter(found)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "StreamWriter":
    """A writer that was checked against its gateway."""
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
        _tell_abort(self.options, messages, "write it again with the same option writeId to add only the rest")


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise LogError("Spark does not tell the task its query and batch: a repeat could not be known as one")
        return _write(self.options, iterator, f"query {query} batch {batch}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _log.info("batch written: topic=%s batch=%d %s", self.options.topic, batchId, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _tell_abort(self.options, messages, f"batch {batchId} adds only the rest when the query goes on")


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
    """The first time only: a gateway that is down for a moment must not fail a batch that is already written."""
    Publisher(options).check()


def _write(options: SinkOptions, batches: Iterable[pa.RecordBatch], whose: str) -> Written:
    publisher = Publisher(options)
    written = Written()
    identity = f"{whose} partition {_context().partitionId()}"
    for chunk in chunks(rows(batches, identity), options.batch_size):
        written.counts += publisher.publish(chunk)
    return written


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise LogError("write runs in a task of Spark only")
    return context


def _sum(messages: Sequence[WriterCommitMessage | None]) -> Counts:
    total = Counts()
    for message in messages:
        if isinstance(message, Written):
            total += message.counts
    return total


def _tell_abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], remedy: str) -> None:
    _log.warning(
        "write failed: topic=%s, %s of the tasks that ended well stays there; %s", options.topic, _sum(messages), remedy
    )
