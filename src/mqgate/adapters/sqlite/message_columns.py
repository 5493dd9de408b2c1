"""Pages of a bulk read, as Arrow columns that SQLite concatenates.

SQLite concatenates the values of a column into one value, and Arrow splits it. Both release the lock of the
interpreter, so that publishes and receives continue during a bulk read, and no row becomes a Python object. The
statement can only use the primary key, so rows are visited in the order of their positions.

The API rejects texts that contain the separator or the character for null. If such a text is stored nevertheless, the
number of parts or of nulls differs from the number that SQLite counted, and the page is read row by row.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from mqgate.adapters.sqlite.engine import queries
from mqgate.adapters.sqlite.threads import View
from mqgate.ports.message_columns import map_of, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["page"]

SQL = queries("message_columns")
_NULL, _SEPARATOR = "\x01", "\x02"
# The SQL column of each Arrow column. The other columns are constant, or follow from the first row.
_SOURCES = {name: name for name in ("id", "key", "tag", "properties", "body", "storedAt")} | {
    "propertiesJson": "properties"
}
_properties = msgspec.json.Decoder(list[dict[str, str] | None]).decode


class _AmbiguousColumn(Exception):
    """A text contains a separator, so that the column cannot be split."""


def page(
    view: View, first: int, max_count: int, max_bytes: int, names: Sequence[str], constant: Mapping[str, Any]
) -> "pa.RecordBatch | None":
    """Return the rows from a position on that fit; None if there is none, or if they must be read one by one.

    `constant` contains the columns with the same value in every row, and the offset of the first row.
    """
    import pyarrow as pa  # noqa: PLC0415 - loaded by the first bulk read only

    sources = tuple(dict.fromkeys(_SOURCES[name] for name in names if name in _SOURCES))
    last = first + positions_that_fit(view, first, max_count, max_bytes, sources) - 1
    count, newest, *values = view.one(_statement(sources), (first, last))
    # Rows are missing at the start, where retention was faster, or in the middle.
    if not count or newest != first + count - 1:
        return None
    raw = dict(zip(sources, zip(values[::2], values[1::2], strict=True), strict=True))
    schema = schema_of(names)
    try:
        return pa.record_batch([_column(field, count, raw, constant) for field in schema], schema=schema)
    except _AmbiguousColumn:
        return None


def positions_that_fit(view: View, first: int, max_count: int, max_bytes: int, sources: tuple[str, ...]) -> int:
    """Return the number of positions, from the first one on, whose rows fit, at least one.

    A few more rows may fit: finding the last one costs more than another page.
    """
    positions = max_count
    while True:
        count, size = view.one(_sizes(sources), (first, first + positions - 1))
        if size <= max_bytes or positions <= 1:
            return positions
        # At least a quarter less, because one large first message would make the steps small.
        positions = max(1, min(count * max_bytes // size, positions * 3 // 4))


def _column(
    field: "pa.Field", count: int, raw: Mapping[str, tuple[Any, Any]], constant: Mapping[str, Any]
) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    name = field.name
    if name == "offset":
        start = pa.scalar(constant[name] - 1, field.type)
        return pc.cumulative_sum(pa.repeat(pa.scalar(1, field.type), count), start=start)
    if name in constant:
        return pa.repeat(pa.scalar(constant[name], field.type), count)
    if name == "storedAt":
        return _texts(count, *raw[name]).cast(pa.int64()).cast(field.type)
    if name == "body":
        return _bodies(count, *raw[name])
    if name == "properties":
        return _maps(count, raw[name][1])
    return _texts(count, *raw[_SOURCES[name]])


def _texts(count: int, present: int | None, raw: bytes) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    # An array of one text, without a copy.
    whole = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("=ii", 0, len(raw))), pa.py_buffer(raw)]
    )
    parts = pc.split_pattern(whole, _SEPARATOR).values
    if len(parts) != count:
        raise _AmbiguousColumn
    if present is None or present == count:
        return parts
    is_null = pc.equal(parts, pa.scalar(_NULL, pa.string()))
    if pc.sum(is_null).as_py() != count - present:
        raise _AmbiguousColumn
    return pc.if_else(is_null, pa.scalar(None, pa.string()), parts)


def _bodies(count: int, lengths: bytes, raw: bytes) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    ends = pc.cumulative_sum(_texts(count, None, lengths).cast(pa.int32()))
    offsets = b"".join((struct.pack("=i", 0), memoryview(ends.buffers()[1])[: 4 * count]))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def _maps(count: int, raw: bytes) -> "pa.Array":
    # JSON contains these characters only in escaped form.
    listed = raw.replace(_SEPARATOR.encode(), b",").replace(_NULL.encode(), b"null")
    properties = _properties(b"[%b]" % listed)
    if len(properties) != count:
        raise _AmbiguousColumn
    return map_of(properties)


@cache
def _statement(sources: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(SQL[source] for source in ('extent', *sources))} {SQL['page']}"


@cache
def _sizes(sources: tuple[str, ...]) -> str:
    """Return the query for the number of rows in a range and the size of their columns."""
    sizes = [SQL[f"{source}_size"] for source in sources if f"{source}_size" in SQL]
    return f"SELECT count(*), coalesce(sum({' + '.join(sizes) or 0}), 0) {SQL['page']}"
