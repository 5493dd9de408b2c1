"""Commands and their two encodings.

    u32 total | u8 header type, u24 header length | header | body        total counts all but itself

A server responds with the header type of its own configuration, whatever the request has, so both are decoded.
Requests have JSON headers: the binary header has sixteen bits for the code, and some codes of RocketMQ 5 are larger.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from mqgate.rocketmq.errors import RemoteProtocolError

__all__ = ["BINARY", "JSON", "MAX_FRAME_BYTES", "Command", "decode", "encode", "encode_binary", "encode_head", "frame"]

JSON, BINARY = 0, 1
# The limit of the servers, including the four bytes of the length. A server closes the connection on a larger frame.
MAX_FRAME_BYTES = 16 << 20
_RESPONSE, _ONE_WAY = 1, 2
# Servers enable features by this version: strict JSON in routes (>= 401), GO_AWAY (> 475).
_VERSION = 479
_PYTHON = 3
_PREFIX = struct.Struct(">II")
_BINARY_HEAD = struct.Struct(">hBhii")
_LENGTH = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_NO_FIELDS: Mapping[str, str] = {}


class Command(NamedTuple):
    """A request or a response, paired by `opaque`. `fields` are the header fields of the code."""

    code: int
    opaque: int
    fields: Mapping[str, str] = _NO_FIELDS
    body: bytes = b""
    flag: int = 0
    remark: str | None = None

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & _ONE_WAY)


class _JsonHeader(msgspec.Struct):
    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    extFields: dict[str, str | None] | None = None  # noqa: N815 - the name on the wire


_header = msgspec.json.Decoder(_JsonHeader)
_encode_json = msgspec.json.Encoder().encode


def encode(command: Command) -> bytes:
    """Return a frame with a JSON header. Raise ValueError if it is larger than servers accept."""
    code, opaque, fields, body, flag, remark = command
    return frame(encode_head(code, fields, flag, remark), opaque, body)


def encode_head(code: int, fields: Mapping[str, str], flag: int = 0, remark: str | None = None) -> bytes:
    """Return the JSON header of a command up to the value of `opaque`, its last member. `frame` completes it.

    The header of a frequent request can be prepared, because only the connection knows the opaque.
    """
    header: dict[str, object] = {"code": code, "language": "PYTHON", "version": _VERSION, "flag": flag}
    if remark is not None:
        header["remark"] = remark
    header["extFields"] = fields
    return _encode_json(header)[:-1] + b',"opaque":'


def frame(head: bytes, opaque: int, body: bytes) -> bytes:
    """Return the frame of an encoded head and a body. Raise ValueError if it is larger than servers accept."""
    header = b"%b%d}" % (head, opaque)
    length = len(header)
    total = 4 + length + len(body)
    if total + 4 > MAX_FRAME_BYTES:
        raise ValueError(f"a command of {total} bytes is larger than servers accept")
    return b"%b%b%b" % (_PREFIX.pack(total, length), header, body)


def encode_binary(command: Command) -> bytes:
    """Return a frame with a binary header, which servers can be configured to send."""
    remark = (command.remark or "").encode()
    entries = b"".join(
        _SHORT.pack(len(name)) + name + _LENGTH.pack(len(value)) + value
        for name, value in ((name.encode(), value.encode()) for name, value in command.fields.items())
    )
    head = b"".join(
        (
            _BINARY_HEAD.pack(command.code, _PYTHON, _VERSION, command.opaque, command.flag),
            _LENGTH.pack(len(remark)) + remark,
            _LENGTH.pack(len(entries)) + entries,
        )
    )
    return _PREFIX.pack(4 + len(head) + len(command.body), BINARY << 24 | len(head)) + head + command.body


def decode(header_type: int, head: bytes, body: bytes) -> Command:
    """Return the command of a frame. Raise RemoteProtocolError if it is malformed."""
    if header_type == JSON:
        return _decode_json(head, body)
    if header_type == BINARY:
        return _decode_binary(head, body)
    raise RemoteProtocolError(f"header type {header_type} is unknown")


def _decode_json(head: bytes, body: bytes) -> Command:
    try:
        parsed = _header.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed JSON header: {error}") from None
    fields = parsed.extFields or _NO_FIELDS
    if None in fields.values():
        fields = {name: value for name, value in fields.items() if value is not None}
    # tuple.__new__ is faster than the constructor, and every response creates one.
    return tuple.__new__(Command, (parsed.code, parsed.opaque, fields, body, parsed.flag, parsed.remark))


def _decode_binary(head: bytes, body: bytes) -> Command:
    try:
        code, _, _, opaque, flag = _BINARY_HEAD.unpack_from(head)
        at = _BINARY_HEAD.size
        remark, at = _text(head, at, _LENGTH)
        (size,) = _LENGTH.unpack_from(head, at)
        at += _LENGTH.size
        end = at + size
        fields: dict[str, str] = {}
        while at < end:
            name, at = _text(head, at, _SHORT)
            fields[name], at = _text(head, at, _LENGTH)
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"malformed binary header: {error}") from None
    if at != end or end > len(head):
        raise RemoteProtocolError("the lengths in a binary header are inconsistent")
    return Command(code, opaque, fields, body, flag, remark or None)


def _text(head: bytes, at: int, length: struct.Struct) -> tuple[str, int]:
    (size,) = length.unpack_from(head, at)
    start = at + length.size
    if size < 0 or start + size > len(head):
        raise RemoteProtocolError("a length in a binary header is out of bounds")
    return head[start : start + size].decode(), start + size
