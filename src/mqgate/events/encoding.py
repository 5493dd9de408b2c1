"""Encodes rows as Arrow IPC streams, each small enough for one message.

Buffers are compressed with LZ4. Zstandard halves the size again but takes twice as long, and recording a row must cost
less than a twentieth of the publish that it describes. Arrow is imported by the first batch.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, cast

from mqgate.core.events import Table
from mqgate.events.rows import PACKED_BYTES, SEPARATOR, JoinedTexts, Part

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EventBatch", "encode"]

# Far below the message limit of a broker. Readers decode a batch as a whole.
_MAX_BYTES = 1 << 20
_MAX_ROWS = 8_192
_MAX_UNTRIMMED_WORDS = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EventBatch(NamedTuple):
    """The body of one message of `mqgate_events`, its table and its row count."""

    table: Table
    body: bytes
    rows: int


def encode(table: Table, parts: Sequence[Part], max_bytes: int = _MAX_BYTES) -> list[EventBatch]:
    """Return the rows of all parts, in several batches if one would be too large."""
    import pyarrow as pa  # noqa: PLC0415 - see the module docstring

    schema = _schema(table)
    indexed = [(part, _index(part.counts)) for part in parts]
    batch = pa.record_batch([_column(field, indexed) for field in schema], schema=schema)
    slices = [_trim_dictionaries(batch.slice(start, _MAX_ROWS)) for start in range(0, batch.num_rows or 1, _MAX_ROWS)]
    return [EventBatch(table, *stream) for part in slices for stream in _streams(part, max_bytes)]


def _streams(batch: "pa.RecordBatch", max_bytes: int) -> list[tuple[bytes, int]]:
    import pyarrow as pa  # noqa: PLC0415 - see the module docstring

    sink = pa.BufferOutputStream()
    # Waking other threads for a few small buffers would take longer than compressing them here.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    written = sink.getvalue()
    if len(written) <= max_bytes or batch.num_rows <= 1:
        return [(written.to_pybytes(), batch.num_rows)]
    half = batch.num_rows // 2
    return _streams(_trim_dictionaries(batch.slice(0, half)), max_bytes) + _streams(
        _trim_dictionaries(batch.slice(half)), max_bytes
    )


def _trim_dictionaries(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Remove unused words from large dictionaries: a slice keeps the dictionaries of the whole batch."""
    import pyarrow as pa  # noqa: PLC0415 - see the module docstring

    columns = [
        column.dictionary_decode().dictionary_encode()
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > _MAX_UNTRIMMED_WORDS
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _index(counts: Sequence[int]) -> "pa.Array":
    """Return the index of its run for each row."""
    import pyarrow as pa  # noqa: PLC0415 - see the module docstring
    import pyarrow.compute as pc  # noqa: PLC0415 - see the module docstring

    # Run ends must increase, so empty runs are left out.
    runs = [run for run, count in enumerate(counts) if count] if 0 in counts else list(range(len(counts)))
    ends = list(accumulate([counts[run] for run in runs]))
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(runs, pa.int32()))
    return pc.run_end_decode(encoded)


def _column(field: "pa.Field", parts: Sequence[tuple[Part, "pa.Array"]]) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see the module docstring

    arrays = [_values(field, part, index) for part, index in parts]
    # `concat_arrays` merges the dictionaries.
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.nulls(0, field.type)


def _values(field: "pa.Field", part: Part, index: "pa.Array") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see the module docstring

    if field.name in part.row_values:
        return _array(part.row_values[field.name], field.type)
    value = part.run_values.get(field.name)
    values = value if isinstance(value, list | tuple) else (value,)
    if values.count(None) == len(values):
        # The common case: most columns of most events are null.
        return pa.nulls(len(index), field.type)
    if values.count(values[0]) == len(values):
        return _array(values[:1], field.type).take(pa.repeat(pa.scalar(0, pa.int32()), len(index)))
    return _array(values, field.type).take(index)


def _array(values: Sequence[object], kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see the module docstring
    import pyarrow.compute as pc  # noqa: PLC0415 - see the module docstring

    if isinstance(values, JoinedTexts):
        return pc.split_pattern(pa.array(values, kind), SEPARATOR).flatten()
    if isinstance(values, bytes):
        return pa.Array.from_buffers(kind, len(values) // PACKED_BYTES, [None, pa.py_buffer(values)])
    if pa.types.is_timestamp(kind):
        if values and isinstance(values[0], datetime):
            # Passing datetimes to Arrow takes six times as long, because it reads the zone of each.
            since = [value - _EPOCH for value in cast("Sequence[datetime]", values)]
            return pa.array(since, pa.duration("ms")).view(pa.int64()).view(kind)
        # Converting integers to timestamps directly takes three times as long.
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


@cache
def _schema(table: Table) -> "pa.Schema":
    import pyarrow as pa  # noqa: PLC0415 - see the module docstring

    kinds = {
        "text": pa.string(),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "int": pa.int64(),
        "instant": pa.timestamp("ms", tz="UTC"),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in table.columns])
