"""Decodes messages of the events topic to rows of one frame.

The column `table` distinguishes the three tables of `core.events`. Columns that a table does not have are null. Each
message adds a row `batch`, so that its number is known even if it has no events. A message that cannot be read adds a
row `quarantine` with the reason: a message of another version of the gateway must not stop the stream.
"""

from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType

from mqgate.core.events import TABLES, Table

__all__ = ["BATCH", "MESSAGE", "QUARANTINE", "SCHEMA", "Raw", "decode", "decode_messages"]

BATCH, QUARANTINE = "batch", "quarantine"
# The schema for the source. Properties are the text of a JSON object.
MESSAGE = "topic STRING, queue STRING, offset BIGINT, properties STRING, body BINARY, storedAt TIMESTAMP"

_INSTANT = pa.timestamp("us", tz="UTC")
_TYPES = {"text": pa.string(), "word": pa.string(), "int": pa.int64(), "instant": _INSTANT}
_BATCH_COLUMNS = {
    "table": pa.string(),
    "batch_topic": pa.string(),
    "batch_queue": pa.string(),
    "batch_offset": pa.int64(),
    "batch_at": _INSTANT,
    "gateway": pa.string(),
    "incarnation": pa.string(),
    "sequence": pa.int64(),
    "schema": pa.string(),
    "dropped": pa.int64(),
    "is_last": pa.bool_(),
    "is_idle": pa.bool_(),
}
_ROW_COLUMNS = {name: _TYPES[kind] for table in TABLES.values() for name, kind in table.columns}
SCHEMA = pa.schema([*_BATCH_COLUMNS.items(), *_ROW_COLUMNS.items()])
# Synchronized clocks and the delay until the log stores a batch differ by less. Then no correction is needed.
_TOLERANCE_US = 1_000_000
# Upper bounds of valid values. Their sums fit into 64 bits, because Spark fails on an overflow.
_MAX_VALUES = {"count": 1 << 40, "bytes": 1 << 40, "offset": 1 << 53}
_MAX_INSTANT_MS = 253_402_300_799_999
_properties = msgspec.json.Decoder(dict[str, str]).decode


class Raw(NamedTuple):
    """A message of the events topic. `stored_at` is in microseconds."""

    topic: str
    queue: str
    offset: int
    properties: str | None
    body: bytes
    stored_at: int


class _Unreadable(Exception):
    """The reason for the quarantine of a message."""


def decode_messages(messages: DataFrame) -> DataFrame:
    """Return the rows (SCHEMA) of messages (MESSAGE)."""
    # mapInArrow would be simpler, but requires pandas.
    rows = arrow_udf(_decode_all, ArrayType(from_arrow_schema(SCHEMA)))  # type: ignore[call-overload]  # any number
    return messages.select(F.inline(rows("topic", "queue", "offset", "properties", "body", "storedAt")))


def decode(raw: Raw) -> pa.RecordBatch:
    """Return the rows of one message, or one quarantine row if it cannot be read."""
    try:
        # PostgreSQL rejects text with this character.
        properties = {name: text.replace("\0", "") for name, text in _properties(raw.properties or "{}").items()}
    except msgspec.MsgspecError:
        properties = {}
    head = {
        "batch_topic": raw.topic,
        "batch_queue": raw.queue,
        "batch_offset": raw.offset,
        "batch_at": raw.stored_at,
        "gateway": properties.get("gateway", ""),
        "incarnation": properties.get("incarnation", ""),
        "schema": properties.get("schema", ""),
    }
    try:
        found, table = _rows(properties, raw.body)
        head |= {
            "sequence": _number(properties, "sequence"),
            "dropped": _number(properties, "dropped", 0),
            "is_last": properties.get("last") == "true",
            "is_idle": properties.get("last") == "so_far",
        }
        clock_difference = raw.stored_at - _number(properties, "sent_at", max_value=_MAX_INSTANT_MS) * 1000
    except _Unreadable as reason:
        return _single(head | {"table": QUARANTINE, "reason": str(reason).replace("\0", ""), "bytes": len(raw.body)})
    columns = {name: found.column(index) for index, name in enumerate(name for name, _ in table.columns)}
    if abs(clock_difference) > _TOLERANCE_US:
        columns["at"] = pc.add(columns["at"].cast(pa.int64()), clock_difference).cast(_INSTANT)
    rows = _with_all_columns(columns, head | {"table": table.name}, found.num_rows)
    batch_row = _single(head | {"table": BATCH, "count": found.num_rows})
    return pa.Table.from_batches([batch_row, rows]).combine_chunks().to_batches()[0]


def _decode_all(
    topic: pa.Array, queue: pa.Array, offset: pa.Array, properties: pa.Array, body: pa.Array, stored_at: pa.Array
) -> pa.Array:
    """Return a list of row structures for each message."""
    at = stored_at.cast(_INSTANT).cast(pa.int64())
    columns = [column.to_pylist() for column in (topic, queue, offset, properties, body, at)]
    found = [decode(Raw(*message)).to_struct_array() for message in zip(*columns, strict=True)]
    ends = accumulate((len(rows) for rows in found), initial=0)
    values = pa.concat_arrays(found) if found else pa.nulls(0, pa.struct(list(SCHEMA)))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def _rows(properties: dict[str, str], body: bytes) -> tuple[pa.RecordBatch, Table]:
    schema = properties.get("schema", "")
    table = TABLES.get(schema)
    if table is None:
        raise _Unreadable(f"schema {schema!r} is unknown, supported are {', '.join(TABLES)}")
    try:
        found = pa.ipc.open_stream(body).read_all()
        found.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise _Unreadable(f"the body is not an Arrow stream: {error}") from error
    # A later version may add columns. The columns of this version are required.
    columns = [_column(found, name, kind) for name, kind in table.columns]
    types = pa.schema([(name, _TYPES[kind]) for name, kind in table.columns])
    return pa.RecordBatch.from_arrays(columns, schema=types), table


def _column(found: pa.Table, name: str, kind: str) -> pa.Array:
    if found.schema.get_field_index(name) < 0:
        raise _Unreadable(f"column {name} is missing or duplicated")
    column = found.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if kind == "instant" and pa.types.is_integer(column.type):
            column = column.cast(pa.timestamp("ms", tz="UTC"))
        column = column.cast(_TYPES[kind])
    except pa.ArrowException as error:
        raise _Unreadable(f"column {name} is {column.type}, not {kind}: {error}") from error
    if name in _MAX_VALUES:
        ends = pc.min_max(column).as_py()
        if (ends["min"] or 0) < 0 or (ends["max"] or 0) > _MAX_VALUES[name]:
            raise _Unreadable(f"column {name} has {ends['min']} to {ends['max']}, allowed are 0 to {_MAX_VALUES[name]}")
    return pc.replace_substring(column, "\0", "") if pa.types.is_string(column.type) else column


def _number(properties: dict[str, str], name: str, default: int | None = None, max_value: int = 10**18) -> int:
    text = properties.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= max_value):  # noqa: PLR2004 - 64 bits
        raise _Unreadable(f"property {name} is {text!r}, not a number up to {max_value}")
    return int(text)


def _single(values: dict[str, Any]) -> pa.RecordBatch:
    return _with_all_columns({}, values, 1)


def _with_all_columns(columns: dict[str, pa.Array], constants: dict[str, Any], count: int) -> pa.RecordBatch:
    """Return all columns of SCHEMA: given columns, constant columns, and nulls."""
    built = []
    for field in SCHEMA:
        if field.name in columns:
            built.append(columns[field.name])
        elif constants.get(field.name) is not None:
            built.append(pa.repeat(pa.scalar(constants[field.name], field.type), count))
        else:
            built.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(built, schema=SCHEMA)
