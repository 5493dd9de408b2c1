"""Decoding by column gives the same result as decoding by record, for all layouts."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_bytes import BATCH, RECORD_IPV6, RECORD_V1, RECORD_V2

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.pulled_page import decode_page
from mqgate.rocketmq.remoting.record import COMPRESSED, ZLIB, decode_raw, decode_records, encode_record

_RECORD = decode_records(RECORD_V1)[0]
_PACKED = encode_record(_RECORD._replace(sys_flag=COMPRESSED | ZLIB), packed_body=zlib.compress(b"long" * 100))
_BATCHED = encode_record(_RECORD._replace(sys_flag=0x80, body=BATCH))
# A page does not contain the topic name, so it is not checked.
_TOPIC = range(RECORD_V1.index(b"orders"), RECORD_V1.index(b"orders") + len(b"orders"))
_KINDS = [RECORD_V1, RECORD_V2, RECORD_IPV6, _PACKED, _BATCHED]


# Records of the same total length with different lengths of their parts.
_EVEN = [
    encode_record(_RECORD._replace(body=b"b" * (9 - size), properties={"k": "v" * size}, topic=topic))
    for size in (1, 2, 3)
    for topic in ("orders", "refund")
] + [encode_record(_RECORD._replace(body=b"b" * 7, properties={"k": "vvv"}, topic="order"))]


@given(st.lists(st.sampled_from(_EVEN), max_size=8))
def test_records_of_one_length_may_differ_in_their_parts(stored: list[bytes]) -> None:
    """The fast path for uniform pages must check the lengths of all parts."""
    data = b"".join(stored)

    page, records = decode_page(data), decode_raw(data)

    assert list(page.bodies) == [record.body for record in records]
    assert list(page.texts) == [record.properties for record in records]
    assert [page.offset_id(index) for index in range(len(page))] == [record.offset_id for record in records]


@given(st.lists(st.sampled_from([RECORD_V1, *_KINDS]), max_size=8))
def test_a_page_contains_the_same_values_as_the_records(stored: list[bytes]) -> None:
    """Both decoders must return the same messages."""
    data = b"".join(stored)

    page, records = decode_page(data), decode_raw(data)

    assert len(page) == len(records)
    assert page.offsets == [record.queue_offset for record in records]
    assert page.stored_ms == [record.stored_ms for record in records]
    assert list(page.bodies) == [record.body for record in records]
    assert list(page.texts) == [record.properties for record in records]
    assert [page.offset_id(index) for index in range(len(page))] == [record.offset_id for record in records]


def test_a_slice_of_a_page_is_a_page() -> None:
    """A broker may return more messages than requested."""
    page = decode_page(RECORD_V1 + RECORD_V1 + RECORD_V1)

    assert page[1:2].offsets == page.offsets[1:2]
    assert page[1:2].bodies == [b"body"]
    assert len(page[1:]) == 2


@given(st.sampled_from(_KINDS), st.data())
def test_truncated_bytes_raise_a_protocol_error(stored: bytes, data: st.DataObject) -> None:
    """A truncated message must not look complete."""
    cut = data.draw(st.integers(1, len(stored) - 1))

    with pytest.raises(RemoteProtocolError):
        decode_page(RECORD_V1 + stored[:cut])


@given(st.integers(0, len(RECORD_V1) - 1).filter(lambda at: at not in _TOPIC), st.integers(0, 255))
def test_both_decoders_agree_on_a_changed_byte(at: int, byte: int) -> None:
    """The fast decoder must refuse what the other one refuses."""
    changed = RECORD_V1[:at] + bytes([byte]) + RECORD_V1[at + 1 :]
    try:
        records = decode_raw(changed)
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            decode_page(changed)
        return

    page = decode_page(changed)

    assert (page.offsets, list(page.bodies)) == (
        [record.queue_offset for record in records],
        [record.body for record in records],
    )
