"""Rows of the table `message`: their positions, how they are read, and the messages that they contain.

The position of a message is the number of its queue * 2^40 + its offset. It is the primary key, so that the messages of
a queue are stored in order.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mqgate.adapters.sqlite.engine import queries
from mqgate.adapters.sqlite.threads import View
from mqgate.core.lease import QueueBounds
from mqgate.core.message import NO_PROPERTIES, Message

__all__ = ["SQL", "Row", "first_since", "limited", "message_of", "number_of", "offset_of", "position", "read"]

SQL = queries("message_log")
# position, id, key, tag, properties as JSON, store time, body
Row = tuple[int, str, str | None, str | None, str | None, int, bytes]
_OFFSET_BITS = 40
_decode_properties = msgspec.json.Decoder(dict[str, str]).decode


def position(number: int, offset: int) -> int:
    return number << _OFFSET_BITS | offset


def offset_of(position: int) -> int:
    return position & (1 << _OFFSET_BITS) - 1


def number_of(position: int) -> int:
    return position >> _OFFSET_BITS


def message_of(topic: str, queue: str, row: Row) -> Message:
    row_position, message_id, key, tag, properties, stored_ms, body = row
    return Message(
        message_id,
        topic,
        queue,
        offset_of(row_position),
        body,
        key,
        tag,
        _decode_properties(properties) if properties else NO_PROPERTIES,
        stored_ms,
    )


def limited(rows: Iterable[Any], max_bytes: int) -> list[Row]:
    """Return the rows whose bodies fit into `max_bytes`, at least one if there is one."""
    found: list[Row] = []
    size = 0
    for row in rows:
        size += len(row[6])
        if found and size > max_bytes:
            break
        found.append(row)
    return found


def read(view: View, number: int, offset: int, max_count: int, max_bytes: int) -> Sequence[Row]:
    """Read consecutive rows of a queue. Return none if the first one does not exist."""
    first, last = position(number, offset), position(number, offset + max_count - 1)
    found = limited(view.execute(SQL["read"], (first, last, max_count)), max_bytes)
    return found if found and found[0][0] == first else ()


def first_since(view: View, number: int, bounds: QueueBounds, since_ms: int) -> int:
    """Return the first offset stored at or after an instant. Offsets are dense and store times never decrease."""
    low, high = bounds
    while low < high:
        middle = (low + high) // 2
        row = view.one(SQL["stored_at"], (position(number, middle),))
        # Retention has just deleted a missing row, so that it is too old.
        if row is None or row[0] < since_ms:
            low = middle + 1
        else:
            high = middle
    return low
