"""Columns of a message: which exist, which a query requests, and how they are built.

The columns are the same for every transport. Only requested columns are read. The schema of the user is the only
column pruning that Spark offers to a Python source.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mqgate.spark.log import LogError
from mqgate.spark.options import OptionInvalid, Properties

__all__ = ["RowFormat", "UndecodableBody", "full_schema", "row_format_of"]

_TEXT = StringType()
_PROPERTIES: Mapping[str, DataType] = {"map": MapType(_TEXT, _TEXT), "json": _TEXT, "raw": _TEXT}
_decode = msgspec.json.Decoder(dict[str, str]).decode


class UndecodableBody(LogError):
    """A body that is not UTF-8 although the schema requests text."""


def full_schema(properties: Properties) -> StructType:
    """Return the schema with all columns, which applies if the user gives none."""
    types = {
        "id": _TEXT,
        "topic": _TEXT,
        "queue": _TEXT,
        "offset": LongType(),
        "key": _TEXT,
        "tag": _TEXT,
        "properties": _PROPERTIES[properties],
        "body": BinaryType(),
        "storedAt": TimestampType(),
    }
    return StructType([StructField(name, kind) for name, kind in types.items()])


class RowFormat(NamedTuple):
    """The columns and formats of the rows of a query."""

    schema: pa.Schema
    fields: tuple[str, ...]
    properties: Properties
    is_undecodable_null: bool

    def rows(self, topic: str, queue: str, start: int, found: pa.RecordBatch) -> pa.RecordBatch:
        """Convert messages that were read from offset `start` on to rows."""
        count = found.num_rows
        columns = []
        for field in self.schema:
            if field.name == "topic":
                columns.append(pa.repeat(topic, count))
            elif field.name == "queue":
                columns.append(pa.repeat(queue, count))
            elif field.name == "properties":
                columns.append(_BUILD[self.properties](found.column("properties"), field.type))
            elif field.name == "body" and pa.types.is_string(field.type):
                columns.append(self._text(found.column("body"), f"{topic} {queue}", start))
            else:
                columns.append(found.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _text(self, bodies: pa.Array, where: str, start: int) -> pa.Array:
        try:
            return bodies.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [_utf8(body) for body in bodies.to_pylist()]
        if not self.is_undecodable_null:
            raise UndecodableBody(
                f"the body of {where} offset {start + texts.index(None)} is not UTF-8: request body BINARY, "
                "or set option undecodable to null"
            )
        return pa.array(texts, pa.string())


def row_format_of(schema: StructType, properties: Properties, *, is_undecodable_null: bool) -> RowFormat:
    """Return the row format of a schema. Raise OptionInvalid for an unknown column or a wrong type."""
    whole = {field.name: field.dataType for field in full_schema(properties)}
    for field in schema:
        kinds = [whole[field.name]] if field.name in whole else []
        if field.name == "body":
            kinds.append(_TEXT)
        if not kinds:
            raise OptionInvalid(f"schema: column {field.name} does not exist: use {', '.join(whole)}")
        if not any(_same(field.dataType, kind) for kind in kinds):
            allowed = " or ".join(kind.simpleString().upper() for kind in kinds)
            hint = ": see option properties" if field.name == "properties" else ""
            raise OptionInvalid(f"schema: column {field.name} is {allowed}, not {field.dataType.simpleString()}{hint}")
    arrow = to_arrow_schema(schema, timezone="UTC")
    read = tuple(name for name in schema.fieldNames() if name not in {"topic", "queue"})
    return RowFormat(arrow, read, properties, is_undecodable_null)


def _same(requested: DataType, kind: DataType) -> bool:
    return requested.simpleString() == kind.simpleString()


def _utf8(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _build_distinct(texts: pa.Array, kind: pa.DataType, build: Callable[[str], Any]) -> pa.Array:
    """Convert JSON texts, each distinct text once: most messages of a topic have the same few properties."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind)
    encoded = texts.dictionary_encode()
    built = pa.array([build(text) for text in encoded.dictionary.to_pylist()], kind)
    return built.take(encoded.indices)


def _map(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return _build_distinct(texts, kind, lambda text: list(_decode(text).items()))


def _raw(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return _build_distinct(texts, kind, lambda text: "\x02".join(f"{n}\x01{v}" for n, v in _decode(text).items()))


_BUILD: Mapping[str, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    "map": _map,
    "json": lambda texts, _: texts,
    "raw": _raw,
}
