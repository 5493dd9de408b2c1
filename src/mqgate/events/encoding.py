"""Rows as an Arrow IPC stream, small enough for a message.

Buffers are compressed with LZ4: Zstandard halves the bytes again and takes twice as long, and a row must cost
less than a twentieth of the publish that it tells of. Arrow is loaded by the first batch, as by the first bulk read.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, cast

from mqgate.core.events import Table
from mqgate.events.rows import BETWEEN, PACKED, Joined, Part

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Batch", "encode"]

# Far below what a broker takes; what one reads is decoded as a whole.
_MOST_BYTES = 1 << 20
_MOST_ROWS = 8_192
_MANY_WORDS = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Batch(NamedTuple):
    """A message's body, what it holds and how much of it."""

    table: Table
    body: bytes
    rows: int


def encode(table: Table, parts: Sequence[Part], most_bytes: int = _MOST_BYTES) -> list[Batch]:
    """The rows of all parts; in several batches if one would be too large."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    schema = _schema(table)
    indexed = [(part, _index(part.counts)) for part in parts]
    batch = pa.record_batch([_column(field, indexed) for field in schema], schema=schema)
    slices = [_slim(batch.slice(start, _MOST_ROWS)) for start in range(0, batch.num_rows or 1, _MOST_ROWS)]
    return [Batch(table, *each) for some in slices for each in _streams(some, most_bytes)]


def _streams(batch: "pa.RecordBatch", most_bytes: int) -> list[tuple[bytes, int]]:
    import pyarrow as pa  # noqa: PLC0415 - see above

    sink = pa.BufferOutputStream()
    # In this thread alone: to wake others for a few small buffers costs more than to pack them.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    written = sink.getvalue()
    if len(written) <= most_bytes or batch.num_rows <= 1:
        return [(written.to_pybytes(), batch.num_rows)]
    half = batch.num_rows // 2
    return _streams(_slim(batch.slice(0, half)), most_bytes) + _streams(_slim(batch.slice(half)), most_bytes)


def _slim(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """A slice has the words of the whole; where they are many, only its own are kept."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    columns = [
        column.dictionary_decode().dictionary_encode()
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > _MANY_WORDS
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _index(counts: Sequence[int]) -> "pa.Array":
    """Of each row, the run that it belongs to."""
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    # A run's end must lie behind its beginning: what is empty is left out.
    runs = [run for run, count in enumerate(counts) if count] if 0 in counts else list(range(len(counts)))
    ends = list(accumulate([counts[run] for run in runs]))
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(runs, pa.int32()))
    return pc.run_end_decode(encoded)


def _column(field: "pa.Field", parts: Sequence[tuple[Part, "pa.Array"]]) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above

    arrays = [_values(field, part, index) for part, index in parts]
    # Of two that have words of their own, the words are joined.
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.nulls(0, field.type)


def _values(field: "pa.Field", part: Part, index: "pa.Array") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above

    if field.name in part.of_rows:
        return _array(part.of_rows[field.name], field.type)
    told = part.of_runs.get(field.name)
    values = told if isinstance(told, list | tuple) else (told,)
    if values.count(None) == len(values):
        # What most columns of most events are.
        return pa.nulls(len(index), field.type)
    if values.count(values[0]) == len(values):
        return _array(values[:1], field.type).take(pa.repeat(pa.scalar(0, pa.int32()), len(index)))
    return _array(values, field.type).take(index)


def _array(values: Sequence[object], kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    if isinstance(values, Joined):
        return pc.split_pattern(pa.array(values, kind), BETWEEN).flatten()
    if isinstance(values, bytes):
        return pa.Array.from_buffers(kind, len(values) // PACKED, [None, pa.py_buffer(values)])
    if pa.types.is_timestamp(kind):
        if values and isinstance(values[0], datetime):
            # Arrow takes datetimes as well, but asks each of them for its zone: six times as slowly.
            since = [value - _EPOCH for value in cast("Sequence[datetime]", values)]
            return pa.array(since, pa.duration("ms")).view(pa.int64()).view(kind)
        # The same of whole numbers, three times as slowly.
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


@cache
def _schema(table: Table) -> "pa.Schema":
    import pyarrow as pa  # noqa: PLC0415 - see above

    kinds = {
        "text": pa.string(),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "int": pa.int64(),
        "instant": pa.timestamp("ms", tz="UTC"),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in table.columns])
