"""Messages as columns: what a bulk read calls them, and how Arrow types them.

Arrow takes 37 MiB and a tenth of a second to load. The first bulk read pays that, in a thread of its own, not a gateway
that never serves one: hence the imports inside the functions.
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
# The last one is for those who would make text of the map again, or can wait with taking it apart.
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
    """The columns of these names, in this order."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    fields = _fields()
    return pa.schema([fields[name] for name in names])


def as_columns(messages: Sequence[Message], names: Sequence[str]) -> "pa.RecordBatch":
    """The same messages, column by column."""
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
    """Properties as a column of maps; none at all is null."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    return pa.array([list(each.items()) if each else None for each in properties], _fields()["properties"].type)


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
