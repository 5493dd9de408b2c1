"""Records: hand-written bytes, round trips and malformed bytes."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_bytes import LONG_TOPIC, RECORD_IPV6, RECORD_V1, RECORD_V2

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.record import Record, decode_records, encode_record

_ALL = RECORD_V1 + RECORD_V2 + RECORD_IPV6
_BODY_LENGTH_AT, _TOPIC_AT, _PROPERTIES_AT = 84, 92, 99
_int64 = st.integers(-(2**63), 2**63 - 1)
_int32 = st.integers(-(2**31), 2**31 - 1)
_words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=10)


@st.composite
def _records(draw: st.DrawFn) -> Record:
    sys_flag = draw(st.sampled_from([0, 0x10, 0x20, 0x30])) | draw(st.sampled_from([0, 0x2, 0x8]))
    host_size = 16 if sys_flag & 0x20 else 4
    return Record(
        topic=draw(st.text("abcXYZ%_-0189ü", min_size=1, max_size=250)),
        queue_id=draw(_int32),
        queue_offset=draw(_int64),
        body=draw(st.binary(max_size=100)),
        properties=draw(st.dictionaries(_words, _words, max_size=5)),
        stored_ms=draw(_int64),
        born_ms=draw(_int64),
        sys_flag=sys_flag,
        flag=draw(_int32),
        physical_offset=draw(_int64),
        store_host=draw(st.binary(min_size=host_size, max_size=host_size)),
        store_port=draw(_int32),
        reconsume_times=draw(_int32),
        prepared_offset=draw(_int64),
    )


def test_a_record_is_decoded_as_the_protocol_specifies() -> None:
    """Every field is at the position where a broker writes it."""
    (record,) = decode_records(RECORD_V1)

    assert record == Record(
        topic="orders",
        queue_id=3,
        queue_offset=42,
        body=b"body",
        properties={"TAGS": "paid", "KEYS": "k1"},
        stored_ms=1_700_000_000_005,
        born_ms=1_700_000_000_000,
        sys_flag=0,
        flag=5,
        physical_offset=4_294_967_312,
        store_host=b"\x7f\x00\x00\x01",
        store_port=10_911,
        reconsume_times=2,
        prepared_offset=9,
    )
    assert record.offset_id == "7F00000100002A9F0000000100000010"


def test_a_record_with_a_long_topic_is_decoded() -> None:
    """The length of a long topic has two bytes."""
    (record,) = decode_records(RECORD_V2)

    assert (record.topic, record.body, record.properties) == (LONG_TOPIC, b"x", {})
    assert (record.queue_offset, record.physical_offset, record.born_ms, record.stored_ms) == (1, 2, 3, 4)


def test_a_record_of_an_ipv6_broker_is_decoded() -> None:
    """IPv6 addresses are longer and shift the following fields."""
    (record,) = decode_records(RECORD_IPV6)

    assert (record.topic, record.body, record.properties) == ("T", b"x", {"a": "b"})
    assert (record.queue_offset, record.born_ms, record.stored_ms) == (7, 10, 11)
    assert record.offset_id == "20010DB8000000000000000000000002" + "00002A9F" + "00000000000000FF"


def test_empty_bytes_contain_no_records() -> None:
    """A response may be empty."""
    assert decode_records(b"") == []


@given(st.lists(_records(), max_size=4))
def test_concatenated_records_survive_a_round_trip(records: list[Record]) -> None:
    """All records are decoded in their order."""
    assert decode_records(b"".join(map(encode_record, records))) == records


def test_bytes_after_the_properties_are_skipped() -> None:
    """A later version may append fields. The size of a record gives the start of the next one."""
    longer = struct.pack(">i", len(RECORD_V1) + 3) + RECORD_V1[4:] + b"new"

    assert decode_records(longer + RECORD_V2) == decode_records(RECORD_V1 + RECORD_V2)


def test_truncated_records_raise_a_protocol_error() -> None:
    """A truncated response must not look complete."""
    for cut in set(range(1, len(_ALL))) - {len(RECORD_V1), len(RECORD_V1 + RECORD_V2)}:
        with pytest.raises(RemoteProtocolError):
            decode_records(_ALL[:cut])


def _with(at: int, what: bytes, record: bytes = RECORD_V1) -> bytes:
    return record[:at] + what + record[at + len(what) :]


@pytest.mark.parametrize(
    "broken",
    [
        _with(0, b"\x7f\xff\xff\xff"),
        _with(0, b"\xff\xff\xff\xff"),
        _with(0, b"\x00\x00\x00\x00"),
        _with(0, struct.pack(">i", _PROPERTIES_AT)),
        _with(4, b"\xcb\xd4\x31\x94"),
        _with(_BODY_LENGTH_AT, b"\x7f\xff\xff\xff"),
        _with(_BODY_LENGTH_AT, b"\xff\xff\xff\xff"),
        _with(_BODY_LENGTH_AT, b"\xff\xff\xff\x00"),
        _with(_TOPIC_AT, b"\xff"),
        _with(_TOPIC_AT, b"\x06\xff"),
        _with(_PROPERTIES_AT, b"\xff\xff"),
        _with(_PROPERTIES_AT, b"\x7f\xff"),
        _with(_PROPERTIES_AT, b"\x00\x13"),
        _with(89, b"\xff\xff", RECORD_V2),
        _with(89, b"\x80\x00", RECORD_V2),
        _with(89, b"\x7f\xff", RECORD_V2),
    ],
    ids=[
        "total-huge",
        "total-negative",
        "total-zero",
        "total-too-small",
        "magic-of-padding",
        "body-huge",
        "body-negative",
        "body-back-into-the-head",
        "topic-beyond",
        "topic-no-utf8",
        "properties-negative",
        "properties-huge",
        "properties-one-beyond",
        "long-topic-minus-one",
        "long-topic-back-to-the-start",
        "long-topic-beyond",
    ],
)
@pytest.mark.parametrize("before", [b"", RECORD_V1, RECORD_V2 * 200], ids=["first", "second", "far-behind"])
@pytest.mark.parametrize("after", [b"", RECORD_V1], ids=["last", "followed"])
def test_inconsistent_lengths_raise_a_protocol_error(before: bytes, broken: bytes, after: bytes) -> None:
    """No length may point outside of its record."""
    with pytest.raises(RemoteProtocolError):
        decode_records(before + broken + after)


def test_properties_with_invalid_utf8_do_not_block_a_queue() -> None:
    """A producer may send them in a batch, which brokers do not check."""
    odd = _with(_PROPERTIES_AT + 2, b"TAGS\x01\xff\xfeid\x02")

    (record,) = decode_records(odd)

    assert record.properties == {"TAGS": "\ufffd\ufffdid", "KEYS": "k1"}


@given(st.binary(max_size=400))
def test_any_bytes_are_records_or_raise_a_protocol_error(data: bytes) -> None:
    """No other exception is raised."""
    try:
        records = decode_records(data)
    except RemoteProtocolError:
        return

    assert not data or records


_BATCHED = [
    encode_record(decode_records(RECORD_V1)[0]._replace(sys_flag=flag), packed_body=body)
    for flag, body in [(0x1, zlib.compress(b"abc" * 50)), (0x80, bytes(3) + b"\x17" + bytes(19)), (0x81, b"junk")]
]


@given(
    st.sampled_from([RECORD_V1, RECORD_V2, RECORD_IPV6, *_BATCHED]),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=4),
    st.binary(max_size=10),
)
def test_damaged_records_are_records_or_raise_a_protocol_error(
    record: bytes, damages: list[tuple[int, int]], more: bytes
) -> None:
    """Valid records with a few changed bytes reach the edge cases of the decoder."""
    damaged = bytearray(RECORD_V1 + record)
    for at, value in damages:
        damaged[at % len(damaged)] = value

    try:
        records = decode_records(bytes(damaged) + more)
    except RemoteProtocolError:
        return

    assert all(len(record.body) <= len(damaged) * 1032 for record in records)
