"""Rows as an Arrow IPC stream, small enough for a message.

Buffers are compressed with LZ4: Zstandard halves the bytes again and takes five times as long, and a row must cost
less than a twentieth of the publish that it tells of. Arrow is loaded by the first batch, as by the first bulk read.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mqgate.core.events import Table
from mqgate.telemetry.event_rows import Part

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Batch", "encode"]

# Far below what a broker takes; what one reads is decoded as a whole.
_MOST_BYTES = 1 << 20
_MOST_ROWS = 8_192


class Batch(NamedTuple):
    """A message's body, what it holds and how much of it."""

    table: Table
    body: bytes
    rows: int


def encode(table: Table, parts: Sequence[Part], most_bytes: int = _MOST_BYTES) -> list[Batch]:
    """The rows of all parts; in several batches if one would be too large."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    schema = _schema(table)
    batch = pa.record_batch([_column(field, parts) for field in schema], schema=schema)
    slices = [batch.slice(start, _MOST_ROWS) for start in range(0, batch.num_rows or 1, _MOST_ROWS)]
    return [Batch(table, *each) for some in slices for each in _streams(some, most_bytes)]


def _streams(batch: "pa.RecordBatch", most_bytes: int) -> list[tuple[bytes, int]]:
    import pyarrow as pa  # noqa: PLC0415 - see above

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(batch)
    written = sink.getvalue()
    if len(written) <= most_bytes or batch.num_rows <= 1:
        return [(written.to_pybytes(), batch.num_rows)]
    half = batch.num_rows // 2
    return _streams(batch.slice(0, half), most_bytes) + _streams(batch.slice(half), most_bytes)


def _column(field: "pa.Field", parts: Sequence[Part]) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above

    is_word = pa.types.is_dictionary(field.type)
    # Arrow takes whole numbers for instants as well, but three times as slowly.
    kind = pa.string() if is_word else pa.int64() if pa.types.is_timestamp(field.type) else field.type
    arrays = [_values(part.columns.get(field.name), part.number, kind) for part in parts]
    whole = pa.concat_arrays(arrays) if arrays else pa.nulls(0, kind)
    return whole.dictionary_encode() if is_word else whole.view(field.type)


def _values(values: object, number: int, kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above

    if isinstance(values, list | tuple):
        return pa.array(values, kind)
    return pa.nulls(number, kind) if values is None else pa.repeat(pa.scalar(values, kind), number)


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
