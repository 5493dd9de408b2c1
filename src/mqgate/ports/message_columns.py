"""Messages as columns: the column names of a bulk read and their Arrow types.

Loading Arrow takes 37 MiB and 0.1 s. The functions import it, so that only a gateway that serves a bulk read loads it,
in a separate thread.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from mqgate.core.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "as_columns", "map_of", "schema_of"]

DEFAULT_COLUMNS = ("id", "topic", "queue", "offset", "key", "tag", "properties", "body", "storedAt")
# `propertiesJson` serves readers that need the properties as text, or parse them later.
COLUMNS = (*DEFAULT_COLUMNS, "propertiesJson")
_encode = msgspec.json.Encoder().encode

_VALUES: Mapping[str, Callable[[Message], object]] = {
    "id": lambda message: message.id,
    "topic": lambda message: message.topic,
    "queue": lambda message: message.queue,
    "offset": lambda message: message.offset,
    "key": lambda message: message.key,
    "tag": lambda message: message.tag,
    "body": lambda message: message.body,
    "storedAt": lambda message: message.stored_ms,
    "propertiesJson": lambda message: _encode(message.properties).decode() if message.properties else None,
}


def schema_of(names: Sequence[str]) -> "pa.Schema":
    """Return the schema of the named columns, in this order."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    fields = _fields()
    return pa.schema([fields[name] for name in names])


def as_columns(messages: Sequence[Message], names: Sequence[str]) -> "pa.RecordBatch":
    """Return messages as a record batch of the named columns."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    schema = schema_of(names)
    columns = [
        map_of([message.properties for message in messages])
        if field.name == "properties"
        else pa.array(list(map(_VALUES[field.name], messages)), field.type)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def map_of(properties: Sequence[Mapping[str, str] | None]) -> "pa.Array":
    """Return properties as a column of maps. A message without properties has null."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    return pa.array([list(own.items()) if own else None for own in properties], _fields()["properties"].type)


@cache
def _fields() -> Mapping[str, Any]:
    import pyarrow as pa  # noqa: PLC0415 - see above

    fields = {name: pa.field(name, pa.string()) for name in COLUMNS}
    return fields | {
        "offset": pa.field("offset", pa.int64(), nullable=False),
        "properties": pa.field("properties", pa.map_(pa.string(), pa.string())),
        "body": pa.field("body", pa.binary()),
        "storedAt": pa.field("storedAt", pa.timestamp("ms", tz="UTC")),
    }
