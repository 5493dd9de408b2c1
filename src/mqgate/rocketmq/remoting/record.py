"""Stored messages, back to back, as pulls and queries answer them.

The fixed part of the common kind (IPv4 on both sides) is unpacked in one step: decoding was half of a pull's cost.
A producer decides on body and properties, and on most of sysFlag, and the broker stores them unseen. So what is wrong
in there is handed on as it is: one bad message must not stop its queue. Only the broker's own part can be broken.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.remoting.batch import cut_batch, encode_batch
from mqgate.rocketmq.remoting.compression import COMPRESSED, LZ4, ZLIB, ZSTD, unpack

__all__ = [
    "COMMON",
    "COMPRESSED",
    "LZ4",
    "ZLIB",
    "ZSTD",
    "RawRecord",
    "Record",
    "StoredRecord",
    "decode_raw",
    "decode_records",
    "encode_batch",
    "encode_record",
]

_BORN_IPV6, _STORED_IPV6 = 0x10, 0x20
_IPV6 = _BORN_IPV6 | _STORED_IPV6
_INNER_BATCH = 0x80
_FOLDED = COMPRESSED | _INNER_BATCH
_ODD = _FOLDED | _IPV6
_V1, _V2 = 0xDAA320A7, 0xDAA320AB
# total magic crc queue flag offset physical sysflag born-ms host+port stored-ms host port reconsumed prepared body
_FIXED = {
    ipv6: struct.Struct(f">iI4xiiqqiq{20 if ipv6 & _BORN_IPV6 else 8}xq{16 if ipv6 & _STORED_IPV6 else 4}siiqi")
    for ipv6 in (0, _BORN_IPV6, _STORED_IPV6, _IPV6)
}
_FIXED_V4 = _FIXED[0]


class _Kind(NamedTuple):
    """How stored messages of a kind are told from others, and the fixed part of them."""

    fixed: struct.Struct
    magic: int
    odd_flags: int


# By far the most messages: IPv4 on both sides, a topic of usual length, one message, as it was sent.
COMMON = _Kind(_FIXED_V4, _V1, _ODD)
# Where these are among what is unpacked, and how many fields of a Record are not.
_QUEUE_ID, _SYS_FLAG, _BODY_LENGTH = 2, 6, 13
_OWN = 3
_SHORT = struct.Struct(">h")
_CRC, _CRC_AT = struct.Struct(">I"), 8
# A body that unpacks to more than this is a bomb, not a message.
_MAX_BODY_BYTES = 64 << 20
# The bodies of one answer together; thirty-two of the largest that a broker takes are half of it.
_MAX_UNPACKED_BYTES = 256 << 20
# The batches of one answer together: brokers do not compress them, so a frame's size is enough.
_MAX_BATCH_BYTES = 16 << 20
_Properties = TypeVar("_Properties")


class StoredRecord(NamedTuple, Generic[_Properties]):
    """A message as a broker keeps it; its body is unpacked already."""

    topic: str
    body: bytes
    properties: _Properties
    # From here on in the order in which they are stored.
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_ms: int
    stored_ms: int
    store_host: bytes
    store_port: int
    reconsume_times: int
    prepared_offset: int

    @property
    def offset_id(self) -> str:
        """The id that the broker knows it by: where it stored it."""
        return f"{self.store_host.hex()}{self.store_port:08x}{self.physical_offset:016x}".upper()


Record = StoredRecord[dict[str, str]]
# With the properties' text as it lies there: to take it apart is most of the work, and not everybody needs it.
RawRecord = StoredRecord[bytes]


def decode_records(data: bytes) -> list[Record]:
    """All records of an answer; RemoteProtocolError if they are broken."""
    return _decode(data, property_text.decode_bytes)


def decode_raw(data: bytes) -> list[RawRecord]:
    """The same with the properties' texts."""
    return _decode(data, bytes)


def _decode(data: bytes, read: Callable[[bytes], _Properties]) -> list[StoredRecord[_Properties]]:
    found: list[StoredRecord[_Properties]] = []
    room = _Room()
    at, end = 0, len(data)
    try:
        while at < end:
            record, at = _record(data, at, read)
            if record.sys_flag & _FOLDED:
                found += _unfolded(record, room, read)
            else:
                found.append(record)
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"a stored message is broken: {error}") from None
    return found


def _record(data: bytes, at: int, read: Callable[[bytes], _Properties]) -> tuple[StoredRecord[_Properties], int]:
    fixed = _FIXED_V4
    parts = fixed.unpack_from(data, at)
    ipv6 = parts[_SYS_FLAG] & _IPV6
    if ipv6:
        fixed = _FIXED[ipv6]
        parts = fixed.unpack_from(data, at)
    total, magic, body_length = parts[0], parts[1], parts[_BODY_LENGTH]
    start, after = at + fixed.size, at + total
    body_end = start + body_length
    if not start <= body_end < after <= len(data):
        raise RemoteProtocolError(f"a stored message of {total} bytes with a body of {body_length}")
    if magic == _V1:
        topic_start, topic_end = body_end + 1, body_end + 1 + data[body_end]
    else:
        topic_start, topic_end = _long_topic(data, magic, body_end)
    text_start = topic_end + 2
    text_end = text_start + _SHORT.unpack_from(data, topic_end)[0]
    if not text_start <= text_end <= after:
        raise RemoteProtocolError("a stored message's properties go beyond its end")
    own = (
        data[topic_start:topic_end].decode(),
        data[start:body_end],
        read(data[text_start:text_end]),
    )
    # Not by its fields' names: that would be a tenth of the whole.
    return tuple.__new__(StoredRecord, own + parts[_QUEUE_ID:_BODY_LENGTH]), after


def _long_topic(data: bytes, magic: int, at: int) -> tuple[int, int]:
    if magic != _V2:
        raise RemoteProtocolError(f"no stored message begins with {magic:08X}")
    (length,) = _SHORT.unpack_from(data, at)
    if length < 0:
        raise RemoteProtocolError(f"a topic of {length} bytes")
    return at + 2, at + 2 + length


class _Room:
    """How many bytes the folded bodies of one answer may still become."""

    def __init__(self) -> None:
        self.unpacked = _MAX_UNPACKED_BYTES
        self.batches = _MAX_BATCH_BYTES


def _unfolded(
    record: StoredRecord[_Properties], room: _Room, read: Callable[[bytes], _Properties]
) -> list[StoredRecord[_Properties]]:
    """What is in a record: itself with its body unpacked, or a batch's messages; as it lies there if that fails."""
    if record.sys_flag & COMPRESSED:
        body = unpack(record.body, record.sys_flag, min(_MAX_BODY_BYTES, room.unpacked))
        if body is None:
            return [record]
        room.unpacked -= len(body)
        record = record._replace(body=body)
    if not record.sys_flag & _INNER_BATCH or len(record.body) > room.batches:
        return [record]
    room.batches -= len(record.body)
    try:
        entries = cut_batch(record.body)
    except RemoteProtocolError:
        entries = []
    # Their offsets follow the record's own.
    return [
        record._replace(queue_offset=offset, flag=flag, body=body, properties=read(text))
        for offset, (flag, body, text) in enumerate(entries, record.queue_offset)
    ] or [record]


def encode_record(record: Record, *, packed_body: bytes | None = None) -> bytes:
    """A record as a broker writes it, born nowhere; for peers in tests."""
    body = record.body if packed_body is None else packed_body
    topic, encoded = record.topic.encode(), property_text.encode(record.properties).encode()
    is_long = len(topic) > 127  # noqa: PLR2004 - what a signed byte holds
    fixed = _FIXED[record.sys_flag & _IPV6]
    head = bytearray(fixed.size)
    total = fixed.size + len(body) + (2 if is_long else 1) + len(topic) + 2 + len(encoded)
    fixed.pack_into(head, 0, total, _V2 if is_long else _V1, *record[_OWN:], len(body))
    _CRC.pack_into(head, _CRC_AT, zlib.crc32(body) & 0x7FFFFFFF)
    topic_length = _SHORT.pack(len(topic)) if is_long else bytes([len(topic)])
    return b"".join((head, body, topic_length, topic, _SHORT.pack(len(encoded)), encoded))
