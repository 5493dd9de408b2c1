"""The Arrow record batch of a bulk read, built from collected columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mqgate.ports.message_columns import map_of, schema_of
from mqgate.rocketmq.columns import Rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["batch_of", "columns_for"]

# These have the same value for all messages of a queue.
_CONSTANT = {"topic", "queue"}
_decode = msgspec.json.Decoder(dict[str, str]).decode


def columns_for(names: Sequence[str]) -> list[str]:
    """Return the columns to collect for the columns of a bulk read."""
    return sorted({"properties" if name == "propertiesJson" else name for name in names if name not in _CONSTANT})


def batch_of(rows: Rows, names: Sequence[str], topic: str, queue: str) -> "pa.RecordBatch":
    """Return the collected rows as a batch with the named columns."""
    import pyarrow as pa  # noqa: PLC0415 - see ports/message_columns.py

    count, found = rows.count, rows.take()
    texts = found.get("properties")
    if texts is not None:
        found["propertiesJson"] = texts
        if "properties" in names:
            found["properties"] = map_of([text and _decode(text) for text in texts.to_pylist()])
    found |= {name: pa.repeat(value, count) for name, value in (("topic", topic), ("queue", queue)) if name in names}
    return pa.record_batch([found[name] for name in names], schema=schema_of(names))
