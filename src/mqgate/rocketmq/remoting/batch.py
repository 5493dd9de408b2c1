"""The body of a batch: several messages with the same topic, queue and sysFlag.

i32 total | i32 0 | i32 0 | i32 flag | i32 body length | body | i16 properties length | properties        repeated
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting import properties as property_text

__all__ = ["Entry", "cut_batch", "decode_batch", "encode_batch"]

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


class Entry(NamedTuple):
    flag: int
    body: bytes
    properties: dict[str, str]


def encode_batch(messages: Iterable[tuple[bytes, str]]) -> bytes:
    """Encode bodies with their property texts. Raise ValueError if a property text is too long."""
    parts: list[bytes] = []
    for body, text in messages:
        encoded = text.encode()
        if len(encoded) > property_text.MAX_BYTES:
            raise ValueError(f"properties have {len(encoded)} bytes; the maximum is {property_text.MAX_BYTES}")
        total = _HEAD.size + len(body) + _SHORT.size + len(encoded)
        parts += (_HEAD.pack(total, 0, 0, 0, len(body)), body, _SHORT.pack(len(encoded)), encoded)
    return b"".join(parts)


def decode_batch(data: bytes) -> list[Entry]:
    """Return the messages of a batch. Raise RemoteProtocolError if it is malformed."""
    return [Entry(flag, body, property_text.decode_bytes(text)) for flag, body, text in cut_batch(data)]


def cut_batch(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return flag, body and property text of each message of a batch."""
    found: list[tuple[int, bytes, bytes]] = []
    at, end = 0, len(data)
    while at < end:
        if end - at < _HEAD.size:
            raise RemoteProtocolError("a batch ends in the middle of a message")
        total, _, _, flag, body_length = _HEAD.unpack_from(data, at)
        start, after = at + _HEAD.size, at + total
        text_start = start + body_length + _SHORT.size
        if body_length < 0 or not text_start <= after <= end:
            raise RemoteProtocolError("the lengths in a batch are inconsistent")
        (text_length,) = _SHORT.unpack_from(data, start + body_length)
        if text_length < 0 or text_start + text_length > after:
            raise RemoteProtocolError("the properties in a batch exceed their message")
        text = data[text_start : text_start + text_length]
        found.append((flag, data[start : start + body_length], text))
        at = after
    return found
