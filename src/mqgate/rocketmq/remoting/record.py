"""Records of stored messages, as they are concatenated in the responses to pulls and queries.

The fixed part of the common layout (IPv4 addresses) is unpacked in one step, because decoding was half of the cost of a
pull. The producer controls the body, the properties and most of sysFlag, and the broker stores them unchecked. Faults
in them are therefore passed on unchanged: one malformed message must not block its queue. Only faults in the part that
the broker writes raise an error.
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
_PACKED = COMPRESSED | _INNER_BATCH
_UNCOMMON = _PACKED | _IPV6
_V1, _V2 = 0xDAA320A7, 0xDAA320AB
# total magic crc queue flag offset physical sysflag born-ms host+port stored-ms host port reconsumed prepared body
_FIXED = {
    ipv6: struct.Struct(f">iI4xiiqqiq{20 if ipv6 & _BORN_IPV6 else 8}xq{16 if ipv6 & _STORED_IPV6 else 4}siiqi")
    for ipv6 in (0, _BORN_IPV6, _STORED_IPV6, _IPV6)
}
_FIXED_V4 = _FIXED[0]


class _Layout(NamedTuple):
    """The fixed part of a record layout, its magic number, and the flags that no record of the layout has."""

    fixed: struct.Struct
    magic: int
    excluded_flags: int


# Most records: IPv4 addresses, a topic of usual length, not compressed, not a batch.
COMMON = _Layout(_FIXED_V4, _V1, _UNCOMMON)
# Indexes in the unpacked fixed part, and the number of Record fields that are not in it.
_QUEUE_ID, _SYS_FLAG, _BODY_LENGTH = 2, 6, 13
_OWN = 3
_SHORT = struct.Struct(">h")
_CRC, _CRC_AT = struct.Struct(">I"), 8
# A body that decompresses to more than this is an attack, not a message.
_MAX_BODY_BYTES = 64 << 20
# The limit for all bodies of one response; 32 bodies of the maximum size of a broker are half of it.
_MAX_UNPACKED_BYTES = 256 << 20
# The limit for all batches of one response: brokers do not compress them, so the size of a frame is enough.
_MAX_BATCH_BYTES = 16 << 20
_Properties = TypeVar("_Properties")


class StoredRecord(NamedTuple, Generic[_Properties]):
    """A stored message. Its body is decompressed."""

    topic: str
    body: bytes
    properties: _Properties
    # The following fields are in the order of the fixed part.
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
        """Return the broker's id of the message: the address of the broker and the offset in its commit log."""
        return f"{self.store_host.hex()}{self.store_port:08x}{self.physical_offset:016x}".upper()


Record = StoredRecord[dict[str, str]]
# With the undecoded property text: decoding it is most of the work, and not every caller needs it.
RawRecord = StoredRecord[bytes]


def decode_records(data: bytes) -> list[Record]:
    """Return all records of a response. Raise RemoteProtocolError if they are malformed."""
    return _decode(data, property_text.decode_bytes)


def decode_raw(data: bytes) -> list[RawRecord]:
    """Return all records of a response, with undecoded property texts."""
    return _decode(data, bytes)


def _decode(data: bytes, read: Callable[[bytes], _Properties]) -> list[StoredRecord[_Properties]]:
    found: list[StoredRecord[_Properties]] = []
    budget = _Budget()
    at, end = 0, len(data)
    try:
        while at < end:
            record, at = _record(data, at, read)
            if record.sys_flag & _PACKED:
                found += _unpacked(record, budget, read)
            else:
                found.append(record)
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"malformed record: {error}") from None
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
        raise RemoteProtocolError(f"malformed record of {total} bytes with a body of {body_length}")
    if magic == _V1:
        topic_start, topic_end = body_end + 1, body_end + 1 + data[body_end]
    else:
        topic_start, topic_end = _long_topic(data, magic, body_end)
    text_start = topic_end + 2
    text_end = text_start + _SHORT.unpack_from(data, topic_end)[0]
    if not text_start <= text_end <= after:
        raise RemoteProtocolError("the properties of a record exceed it")
    variable = (
        data[topic_start:topic_end].decode(),
        data[start:body_end],
        read(data[text_start:text_end]),
    )
    # tuple.__new__ is faster: the constructor would take a tenth of the whole time.
    return tuple.__new__(StoredRecord, variable + parts[_QUEUE_ID:_BODY_LENGTH]), after


def _long_topic(data: bytes, magic: int, at: int) -> tuple[int, int]:
    if magic != _V2:
        raise RemoteProtocolError(f"unknown magic number of a record: {magic:08X}")
    (length,) = _SHORT.unpack_from(data, at)
    if length < 0:
        raise RemoteProtocolError(f"invalid topic length in a record: {length}")
    return at + 2, at + 2 + length


class _Budget:
    """The remaining bytes for decompressed bodies and for batches of one response."""

    def __init__(self) -> None:
        self.unpacked = _MAX_UNPACKED_BYTES
        self.batches = _MAX_BATCH_BYTES


def _unpacked(
    record: StoredRecord[_Properties], budget: _Budget, read: Callable[[bytes], _Properties]
) -> list[StoredRecord[_Properties]]:
    """Return the record with its body decompressed, or the messages of a batch; if that fails, the unchanged record."""
    if record.sys_flag & COMPRESSED:
        body = unpack(record.body, record.sys_flag, min(_MAX_BODY_BYTES, budget.unpacked))
        if body is None:
            return [record]
        budget.unpacked -= len(body)
        record = record._replace(body=body)
    if not record.sys_flag & _INNER_BATCH or len(record.body) > budget.batches:
        return [record]
    budget.batches -= len(record.body)
    try:
        entries = cut_batch(record.body)
    except RemoteProtocolError:
        entries = []
    # The messages of a batch have consecutive offsets.
    return [
        record._replace(queue_offset=offset, flag=flag, body=body, properties=read(text))
        for offset, (flag, body, text) in enumerate(entries, record.queue_offset)
    ] or [record]


def encode_record(record: Record, *, packed_body: bytes | None = None) -> bytes:
    """Encode a record as a broker does, without a born host. For tests."""
    body = record.body if packed_body is None else packed_body
    topic, encoded = record.topic.encode(), property_text.encode(record.properties).encode()
    is_long = len(topic) > 127  # noqa: PLR2004 - the maximum of a signed byte
    fixed = _FIXED[record.sys_flag & _IPV6]
    head = bytearray(fixed.size)
    total = fixed.size + len(body) + (2 if is_long else 1) + len(topic) + 2 + len(encoded)
    fixed.pack_into(head, 0, total, _V2 if is_long else _V1, *record[_OWN:], len(body))
    _CRC.pack_into(head, _CRC_AT, zlib.crc32(body) & 0x7FFFFFFF)
    topic_length = _SHORT.pack(len(topic)) if is_long else bytes([len(topic)])
    return b"".join((head, body, topic_length, topic, _SHORT.pack(len(encoded)), encoded))
