"""Commands and their two headers: hand-written bytes, round trips and malformed headers."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_bytes import BINARY_RESPONSE, REQUEST, RESPONSE

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.command import BINARY, JSON, MAX_FRAME_BYTES, Command, decode, encode, encode_binary
from mqgate.rocketmq.remoting.frame import FrameReader

# Lone surrogates cannot be encoded as UTF-8.
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_commands = st.builds(
    Command,
    code=st.integers(0, 32_767),
    opaque=st.integers(-(2**31), 2**31 - 1),
    fields=st.dictionaries(_texts, _texts, max_size=6),
    body=st.binary(max_size=200),
    flag=st.integers(0, 3),
    remark=st.none() | _texts.filter(bool),
)
_RIGHT = {"code": 0, "opaque": 1, "flag": 1, "remark": None, "extFields": {"a": "b"}}
_HEAD = struct.pack(">hBhii", 0, 0, 479, 1, 1)


def test_a_request_is_encoded_as_the_protocol_specifies() -> None:
    """Servers decode these bytes."""
    written = encode(Command(310, 7, {"b": "orders"}, b"hello"))

    assert written == REQUEST


def test_a_json_response_is_decoded() -> None:
    """Servers send JSON headers by default."""
    (command,) = FrameReader().feed(RESPONSE)

    assert command == Command(0, 7, {"queueOffset": "12", "msgId": "7F00"}, b"\x00\xff", 1, "ok")
    assert command.is_response
    assert not command.is_one_way


def test_a_binary_response_is_decoded() -> None:
    """A server responds with its configured header type, whatever the request has."""
    (command,) = FrameReader().feed(BINARY_RESPONSE)

    assert command == Command(19, -2, {"offset": "42"}, b"xyz", 1, "none")


def test_fields_and_remark_may_be_missing_or_null() -> None:
    """Java omits null members or writes null. Neither is a value."""
    bare = decode(JSON, b'{"code":0,"opaque":1}', b"")
    nulls = decode(JSON, b'{"code":0,"opaque":1,"remark":null,"extFields":{"a":null,"b":""}}', b"")

    assert bare == Command(0, 1)
    assert nulls.fields == {"b": ""}
    assert nulls.remark is None


@given(_commands)
def test_commands_survive_a_json_header(command: Command) -> None:
    """Any text in a field is preserved."""
    assert FrameReader().feed(encode(command)) == [command]


@given(_commands)
def test_commands_survive_a_binary_header(command: Command) -> None:
    """Any text in a field is preserved with this header too."""
    assert FrameReader().feed(encode_binary(command)) == [command]


def test_codes_beyond_sixteen_bits_fit_the_json_header() -> None:
    """Some codes of RocketMQ 5 do not fit the binary header, so requests have JSON headers."""
    assert FrameReader().feed(encode(Command(200_050, 1)))[0].code == 200_050


def test_a_command_larger_than_servers_accept_is_refused() -> None:
    """A server would close the connection, and fail all other requests on it."""
    room = MAX_FRAME_BYTES - len(encode(Command(310, 7)))

    assert len(encode(Command(310, 7, body=bytes(room)))) == MAX_FRAME_BYTES
    with pytest.raises(ValueError, match="larger"):
        encode(Command(310, 7, body=bytes(room + 1)))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"code":0,"opaque":1}x',
        b'{"code":0,"opaque":1,"remark":"\xff"}',
        b'{"code":0,"opaque":' + b"9" * 5000 + b"}",
        b'{"code":0,"opaque":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["empty", "cut", "null", "list", "no-utf8", "more", "bad-text", "huge-number", "deep"],
)
def test_a_malformed_json_header_raises_a_protocol_error(head: bytes) -> None:
    """There is one exception for all malformed input, so that the connection is closed properly."""
    with pytest.raises(RemoteProtocolError):
        decode(JSON, head, b"")


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": "0"},
        {"code": None},
        {"code": 1.5},
        {"opaque": "1"},
        {"opaque": [1]},
        {"flag": "1"},
        {"flag": None},
        {"remark": 5},
        {"extFields": ["a"]},
        {"extFields": "a"},
        {"extFields": {"a": 1}},
        {"extFields": {"a": {"b": "c"}}},
    ],
    ids=str,
)
def test_wrong_types_in_a_json_header_raise_a_protocol_error(wrong: dict[str, Any]) -> None:
    """Types are checked once, during decoding."""
    with pytest.raises(RemoteProtocolError):
        decode(JSON, json.dumps(_RIGHT | wrong).encode(), b"")


@pytest.mark.parametrize("missing", ["code", "opaque"])
def test_a_header_without_code_or_opaque_raises_a_protocol_error(missing: str) -> None:
    """Without them a response cannot be assigned to a request."""
    with pytest.raises(RemoteProtocolError):
        decode(JSON, json.dumps({name: value for name, value in _RIGHT.items() if name != missing}).encode(), b"")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        _HEAD,
        _HEAD + b"\xff\xff\xff\xff" + bytes(4),
        _HEAD + b"\x7f\xff\xff\xff" + bytes(4),
        _HEAD + bytes(4) + b"\xff\xff\xff\xff",
        _HEAD + bytes(4) + b"\x00\x00\x00\x08" + b"\x00\x01a",
        _HEAD + bytes(4) + b"\x00\x00\x00\x09" + b"\xff\xffabc" + bytes(4),
        _HEAD + bytes(4) + b"\x00\x00\x00\x07" + b"\x00\x01a\xff\xff\xff\xff",
        _HEAD + bytes(4) + b"\x00\x00\x00\x07" + b"\x00\x01a\xff\xff\xff\xf9",
        _HEAD + bytes(4) + b"\x00\x00\x00\x03" + b"\x00\x01a\x00\x00\x00\x01b",
        _HEAD + b"\x00\x00\x00\x01\xff" + bytes(4),
    ],
    ids=[
        "empty",
        "cut",
        "negative-remark",
        "huge-remark",
        "negative-fields",
        "fields-cut",
        "negative-name",
        "negative-value",
        "back-to-the-start-for-ever",
        "value-beyond-fields",
        "no-utf8",
    ],
)
def test_a_malformed_binary_header_raises_a_protocol_error(head: bytes) -> None:
    """No length may exceed the header."""
    with pytest.raises(RemoteProtocolError):
        decode(BINARY, head, b"")


@given(st.integers(0, 255), st.binary(max_size=100))
def test_any_header_is_a_command_or_raises_a_protocol_error(header_type: int, head: bytes) -> None:
    """No other exception is raised for any bytes."""
    try:
        command = decode(header_type, head, b"")
    except RemoteProtocolError:
        return

    assert isinstance(command.code, int)
