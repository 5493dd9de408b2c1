"""A page of the log as Arrow columns, put together by SQLite.

For each column SQLite makes one long value of all its rows, and Arrow takes it apart: both work outside the
interpreter's lock, so that publishing and receiving go on beside a bulk read, and a row costs less than one of Python
objects. Rows are visited in the order of their positions: the statement leaves no way to them but the primary key.

The marks between and for texts cannot be in a published message, but nothing rests on that: were one there, the
column would have more parts, or more nulls, than SQLite counted, and the page is read row by row instead.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from mqgate.adapters.sqlite.engine import queries
from mqgate.adapters.sqlite.threads import View
from mqgate.ports.message_columns import map_of, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["page"]

SQL = queries("message_columns")
_NULL, _BETWEEN = "\x01", "\x02"
_SAMPLE = 64
# How much of the room a guess fills.
_USED = 0.9
# What is read for a column; the others are the same in every row, or follow from the first.
_READ_FOR = {name: name for name in ("id", "key", "tag", "properties", "body", "storedAt")} | {
    "propertiesJson": "properties"
}
_properties = msgspec.json.Decoder(list[dict[str, str] | None]).decode


class _Unclear(Exception):
    """A mark is part of a text, so that its values cannot be told apart."""


def page(
    view: View, first: int, max_count: int, max_bytes: int, names: Sequence[str], same: Mapping[str, Any]
) -> "pa.RecordBatch | None":
    """Rows from a position on, as many as fit; None if there is none, or if they must be read one by one.

    `same` holds what a column has in every row, and as `offset` that of the first.
    """
    import pyarrow as pa  # noqa: PLC0415 - loaded by the first bulk read only

    sources = tuple(dict.fromkeys(_READ_FOR[name] for name in names if name in _READ_FOR))
    count, last, *values = _guessed(view, first, max_count, max_bytes, sources) or view.one(
        _statement(sources), (first, first + rows_that_fit(view, first, max_count, max_bytes, sources) - 1)
    )
    # Of a range without holes, from the first row on; retention may have been quicker.
    if not count or last != first + count - 1:
        return None
    raw = dict(zip(sources, zip(values[::2], values[1::2], strict=True), strict=True))
    schema = schema_of(names)
    try:
        return pa.record_batch([_column(field, count, raw, same) for field in schema], schema=schema)
    except _Unclear:
        return None


def rows_that_fit(view: View, first: int, max_count: int, max_bytes: int, sources: tuple[str, ...]) -> int:
    """How many rows from a position on are there and fit, at least one if there is one.

    Not always as many as would fit: to find the last one costs more than another page.
    """
    rows = max_count
    while True:
        count, size = view.one(_sizes(sources), (first, first + rows - 1))
        if size <= max_bytes or count <= 1:
            return int(count)
        # Falls by a quarter at least, lest one large message in front makes this a long way.
        rows = max(1, min(count * max_bytes // size, count * 3 // 4))


def _guessed(view: View, first: int, max_count: int, max_bytes: int, sources: tuple[str, ...]) -> Any:
    """As many rows as fit if all are like the first few; None if they were not.

    To measure all rows before they are read costs a quarter of reading them: the processor has forgotten them since.
    """
    count, size = view.one(_sizes(sources), (first, first + min(max_count, _SAMPLE) - 1))
    if not count:
        return None
    rows = min(max_count, max(1, int(max_bytes * _USED * count / size))) if size else max_count
    try:
        with view.max_value(max_bytes):
            found = view.one(_statement(sources), (first, first + rows - 1))
    except apsw.TooBigError:
        return None
    return found if sum(len(value) for value in found if isinstance(value, bytes)) <= max_bytes else None


def _column(field: "pa.Field", count: int, raw: Mapping[str, tuple[Any, Any]], same: Mapping[str, Any]) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    name = field.name
    if name == "offset":
        start = pa.scalar(same[name] - 1, field.type)
        return pc.cumulative_sum(pa.repeat(pa.scalar(1, field.type), count), start=start)
    if name in same:
        return pa.repeat(pa.scalar(same[name], field.type), count)
    if name == "storedAt":
        return _texts(count, *raw[name]).cast(pa.int64()).cast(field.type)
    if name == "body":
        return _bodies(count, *raw[name])
    if name == "properties":
        return _maps(count, raw[name][1])
    return _texts(count, *raw[_READ_FOR[name]])


def _texts(count: int, present: int | None, raw: bytes) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    # The bytes as they are, as an array of one text.
    whole = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("=ii", 0, len(raw))), pa.py_buffer(raw)]
    )
    parts = pc.split_pattern(whole, _BETWEEN).values
    if len(parts) != count:
        raise _Unclear
    if present is None or present == count:
        return parts
    is_null = pc.equal(parts, pa.scalar(_NULL, pa.string()))
    if pc.sum(is_null).as_py() != count - present:
        raise _Unclear
    return pc.if_else(is_null, pa.scalar(None, pa.string()), parts)


def _bodies(count: int, lengths: bytes, raw: bytes) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    ends = pc.cumulative_sum(_texts(count, None, lengths).cast(pa.int32()))
    offsets = b"".join((struct.pack("=i", 0), memoryview(ends.buffers()[1])[: 4 * count]))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def _maps(count: int, raw: bytes) -> "pa.Array":
    # JSON has no such characters but escaped ones.
    listed = raw.replace(_BETWEEN.encode(), b",").replace(_NULL.encode(), b"null")
    properties = _properties(b"[%b]" % listed)
    if len(properties) != count:
        raise _Unclear
    return map_of(properties)


@cache
def _statement(sources: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(SQL[source] for source in ('extent', *sources))} {SQL['page']}"


@cache
def _sizes(sources: tuple[str, ...]) -> str:
    """Return the query for the number of rows in a range and the size of their columns."""
    sizes = [SQL[f"{source}_size"] for source in sources if f"{source}_size" in SQL]
    return f"SELECT count(*), coalesce(sum({' + '.join(sizes) or 0}), 0) {SQL['page']}"
