"""The JSON dialect of the servers is decoded, and other bodies are refused."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.loose_json import parse

_STATS = (
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":7,"minOffset":1},'
    b'{"brokerName":"b","queueId":1,"topic":"t"}:{"maxOffset":0,"minOffset":0}},"topicPutTps":0.5}'
)
_documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('ab"\\ü\n', max_size=4), inner, max_size=4),
    max_leaves=20,
)


def test_objects_may_be_keys() -> None:
    """Statistics by queue are sent in this form only."""
    table = parse(_STATS)["offsetTable"]

    assert [dict(queue)["queueId"] for queue in table] == [0, 1]
    assert table[("brokerName", "b"), ("queueId", 0), ("topic", "t")] == {"maxOffset": 7, "minOffset": 1}


def test_numbers_may_be_keys() -> None:
    """The addresses of a broker are sent in this form."""
    found = parse(b'{"brokerAddrs":{0:"127.0.0.1:10911", -1 : "x", 12345678901234567890:{}}}')

    assert found == {"brokerAddrs": {"0": "127.0.0.1:10911", "-1": "x", "12345678901234567890": {}}}


def test_other_values_as_keys_become_their_text() -> None:
    """No server sends them today, but they must not raise an error."""
    assert parse(b'{true:1,null:2,1.5:3,["a"]:4}') == {"true": 1, "null": 2, "1.5": 3, '["a"]': 4}


@given(_documents, st.sampled_from([None, 2]), st.booleans())
def test_strict_json_is_decoded_like_json(document: object, indent: int | None, ascii_only: bool) -> None:
    """Most bodies are plain JSON, with any white space and escapes."""
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)

    assert parse(f" \t\r\n{text}\n ".encode()) == document


def test_control_characters_in_strings_are_accepted() -> None:
    """Servers do not escape all control characters."""
    assert parse(b'"a\tb\x01"') == "a\tb\x01"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"[",
        b"}",
        b"{]",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[1 2]",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,',
        b'{"a":1,}',
        b'{"a" 1}',
        b'{"a":1 "b":2}',
        b"{a:1}",
        b"{:1}",
        b'"abc',
        b'"\\x"',
        b'"\\u12"',
        b"-",
        b"01",
        b"1.",
        b"+1",
        b"NaN",
        b"tru",
        b"1 2",
        b"\xff",
        b'"\xff"',
        "٣".encode(),
        b"9" * 5000,
        b"[" * 100_000,
        b"{" * 100_000,
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
        b'{{"a":[]}:1}',
        b'{{"a":{}}:1}',
        b'{{{"a":1}:1,"b":2}:1}',
        b'{[{{"a":1}:2}]:1}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_malformed_json_raises_a_protocol_error(body: bytes) -> None:
    """There is one exception for all malformed input."""
    with pytest.raises(RemoteProtocolError):
        parse(body)


def test_the_depth_of_objects_is_limited() -> None:
    """The limit is enough for all servers and far below the recursion limit."""
    depth = 60

    assert parse(b'{"a":' * depth + b"1" + b"}" * depth)


@given(st.text('{}[]:,"\\ 019eE.-truefalsn\n', max_size=60))
def test_any_text_is_a_value_or_raises_a_protocol_error(text: str) -> None:
    """No other exception is raised."""
    try:
        strict = json.loads(text)
    except ValueError:
        strict = None

    try:
        found = parse(text.encode())
    except RemoteProtocolError:
        assert strict is None
    else:
        assert strict is None or found == strict


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_raise_a_protocol_error(body: bytes) -> None:
    """No other exception is raised for invalid UTF-8."""
    with contextlib.suppress(RemoteProtocolError):
        parse(body)
