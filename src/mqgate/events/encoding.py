"""Rows as an Arrow IPC stream, small enough for a message.

Buffers are compressed with LZ4: Zstandard halves the bytes again and takes five times as long, and a row must cost
less than a twentieth of the publish that it tells of. Arrow is loaded by the first batch, as by the first bulk read.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mqgate.core.events import Table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Batch", "encode"]

# Far below what a broker takes; what one reads is decoded as a whole.
_MOST_BYTES = 1 << 20


class Batch(NamedTuple):
    """A message's body, what it holds and how much of it."""

    table: Table
    body: bytes
    rows: int


def encode(table: Table, columns: Sequence[Sequence[object]], most_bytes: int = _MOST_BYTES) -> list[Batch]:
    """The rows in their order; in several batches if one would be too large."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    schema = _schema(table)
    arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return [Batch(table, *each) for each in _streams(pa.record_batch(arrays, schema=schema), most_bytes)]


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


def _array(values: Sequence[object], kind: Any) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above

    if pa.types.is_timestamp(kind):
        # Arrow takes whole numbers for instants as well, but three times as slowly.
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
