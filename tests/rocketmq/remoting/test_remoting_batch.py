"""Batches: what a producer writes, and what a broker may keep as one record."""

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_bytes import BATCH, RECORD_V1

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting import properties
from mqgate.rocketmq.remoting.batch import Entry, decode_batch, encode_batch
from mqgate.rocketmq.remoting.record import COMPRESSED, decode_records, encode_record

_words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=10)
_entries = st.lists(st.tuples(st.binary(max_size=60), st.dictionaries(_words, _words, max_size=4)), max_size=5)
_INNER_BATCH = 0x80
_RECORD = decode_records(RECORD_V1)[0]
_FOLDED = _RECORD._replace(sys_flag=_INNER_BATCH)


def test_a_batch_is_written_as_the_protocol_says() -> None:
    """A broker takes these bytes apart, and stores what it finds."""
    assert encode_batch([(b"first", "k\x01v1\x02"), (b"\xff", "")]) == BATCH


def test_a_batch_is_read_as_the_protocol_says() -> None:
    """The same bytes the other way round."""
    assert decode_batch(BATCH) == [Entry(0, b"first", {"k": "v1"}), Entry(0, b"\xff", {})]


@given(_entries)
def test_batches_survive(entries: list[tuple[bytes, dict[str, str]]]) -> None:
    """Whatever a producer puts together comes apart the same."""
    encoded = encode_batch([(body, properties.encode(each)) for body, each in entries])

    assert decode_batch(encoded) == [Entry(0, body, each) for body, each in entries]


def test_properties_that_a_batch_cannot_hold_are_refused() -> None:
    """Their length has sixteen bits with a sign; the next message would begin in the middle of them."""
    assert encode_batch([(b"x", "k" * 32_767)])
    with pytest.raises(ValueError, match="32768"):
        encode_batch([(b"x", "k" * 32_768)])


def test_a_batch_cut_short_is_the_peers_fault() -> None:
    """Half a message is none."""
    for cut in set(range(1, len(BATCH))) - {32}:
        with pytest.raises(RemoteProtocolError):
            decode_batch(BATCH[:cut])


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (0, b"\x00\x00\x00\x00"),
        (0, b"\xff\xff\xff\xff"),
        (0, b"\x7f\xff\xff\xff"),
        (0, b"\x00\x00\x00\x1f"),
        (16, b"\xff\xff\xff\xff"),
        (16, b"\xff\xff\xff\xee"),
        (16, b"\xff\xff\xff\xf8"),
        (16, b"\x7f\xff\xff\xff"),
        (25, b"\xff\xff"),
        (25, b"\x00\x06"),
    ],
    ids=repr,
)
def test_lengths_that_do_not_fit_are_the_peers_fault(at: int, what: bytes) -> None:
    """None leads out of its own message."""
    with pytest.raises(RemoteProtocolError):
        decode_batch(BATCH[:at] + what + BATCH[at + len(what) :])


@given(st.binary(max_size=100) | st.builds(lambda at, it: BATCH[:at] + it + BATCH[at:], st.integers(0), st.binary()))
def test_any_bytes_are_a_batch_or_the_peers_fault(data: bytes) -> None:
    """There is no third outcome."""
    try:
        entries = decode_batch(data)
    except RemoteProtocolError:
        return

    assert sum(22 + len(entry.body) for entry in entries) <= len(data)


@given(_entries.filter(bool), st.booleans())
def test_a_batch_kept_as_one_record_comes_as_its_messages(
    entries: list[tuple[bytes, dict[str, str]]], is_compressed: bool
) -> None:
    """Some topics keep batches whole; their messages have offsets of their own all the same."""
    body = encode_batch([(body, properties.encode(each)) for body, each in entries])
    flag = _INNER_BATCH | (COMPRESSED if is_compressed else 0)
    stored = encode_record(_FOLDED._replace(sys_flag=flag), packed_body=zlib.compress(body) if is_compressed else body)

    found = decode_records(stored + RECORD_V1)

    assert [(each.body, each.properties) for each in found[:-1]] == entries
    assert [each.queue_offset for each in found[:-1]] == list(range(42, 42 + len(entries)))
    assert {each.topic for each in found} == {"orders"}
    assert found[-1] == _RECORD


@pytest.mark.parametrize("body", [b"", b"no batch", BATCH[:-1], bytes(40)], ids=["empty", "text", "cut", "zeros"])
def test_a_batch_that_is_none_comes_as_it_lies_there(body: bytes) -> None:
    """Any producer can set that bit on any message; the queue goes on."""
    found = decode_records(encode_record(_FOLDED._replace(body=body)) + RECORD_V1)

    assert [each.body for each in found] == [body, b"body"]


def test_a_compressed_batch_cannot_become_millions_of_messages() -> None:
    """A small body may claim to be a hundred megabytes of the smallest messages."""
    entry = encode_batch([(b"x", "")])
    stream = zlib.compressobj()
    bomb = b"".join(stream.compress(entry * 10_000) for _ in range(250)) + stream.flush()
    stored = encode_record(_FOLDED._replace(sys_flag=_INNER_BATCH | COMPRESSED), packed_body=bomb)
    tracemalloc.start()

    found = decode_records(stored)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(found) == 1
    assert most < 140 << 20
