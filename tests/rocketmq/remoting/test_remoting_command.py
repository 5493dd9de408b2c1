"""Commands and their two headers: bytes written down by hand, round trips, and headers that make no sense."""

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

# Lone surrogates are no text that UTF-8 could carry.
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


def test_a_request_is_written_as_the_protocol_says() -> None:
    """Servers read these very bytes."""
    written = encode(Command(310, 7, {"b": "orders"}, b"hello"))

    assert written == REQUEST


def test_a_json_response_is_read() -> None:
    """It is what servers answer unless someone configured them otherwise."""
    (command,) = FrameReader().feed(RESPONSE)

    assert command == Command(0, 7, {"queueOffset": "12", "msgId": "7F00"}, b"\x00\xff", 1, "ok")
    assert command.is_response
    assert not command.is_one_way


def test_a_binary_response_is_read() -> None:
    """A server answers in its own header type, whatever it was asked in."""
    (command,) = FrameReader().feed(BINARY_RESPONSE)

    assert command == Command(19, -2, {"offset": "42"}, b"xyz", 1, "none")


def test_fields_and_remark_may_be_missing_or_null() -> None:
    """Java leaves out what is null, or writes it; neither is a value."""
    bare = decode(JSON, b'{"code":0,"opaque":1}', b"")
    nulls = decode(JSON, b'{"code":0,"opaque":1,"remark":null,"extFields":{"a":null,"b":""}}', b"")

    assert bare == Command(0, 1)
    assert nulls.fields == {"b": ""}
    assert nulls.remark is None


@given(_commands)
def test_commands_survive_a_json_header(command: Command) -> None:
    """Whatever text a field holds arrives as it was."""
    assert FrameReader().feed(encode(command)) == [command]


@given(_commands)
def test_commands_survive_a_binary_header(command: Command) -> None:
    """The same promise for the other header type."""
    assert FrameReader().feed(encode_binary(command)) == [command]


def test_codes_beyond_sixteen_bits_fit_the_json_header() -> None:
    """RocketMQ 5's codes do not fit the binary one, so this is the header we write."""
    assert FrameReader().feed(encode(Command(200_050, 1)))[0].code == 200_050


def test_a_command_larger_than_servers_take_is_refused_here() -> None:
    """A server would close the connection, and take everybody else's requests with it."""
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
def test_a_broken_json_header_is_the_peers_fault(head: bytes) -> None:
    """One kind of error for whatever arrives, so that the connection ends in an orderly way."""
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
def test_wrong_types_in_a_json_header_are_the_peers_fault(wrong: dict[str, Any]) -> None:
    """A header is checked once, here; nothing behind it has to doubt a type."""
    with pytest.raises(RemoteProtocolError):
        decode(JSON, json.dumps(_RIGHT | wrong).encode(), b"")


@pytest.mark.parametrize("missing", ["code", "opaque"])
def test_a_header_without_code_or_opaque_is_the_peers_fault(missing: str) -> None:
    """Without them there is no telling whom it answers."""
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
def test_a_broken_binary_header_is_the_peers_fault(head: bytes) -> None:
    """Lengths that lead out of the header are never followed."""
    with pytest.raises(RemoteProtocolError):
        decode(BINARY, head, b"")


@given(st.integers(0, 255), st.binary(max_size=100))
def test_any_header_is_a_command_or_the_peers_fault(header_type: int, head: bytes) -> None:
    """There is no third outcome, whatever bytes come."""
    try:
        command = decode(header_type, head, b"")
    except RemoteProtocolError:
        return

    assert isinstance(command.code, int)
