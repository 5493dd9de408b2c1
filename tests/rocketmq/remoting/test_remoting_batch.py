"""Batches, as producers encode them and as brokers may store them in one record."""

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
_BATCHED = _RECORD._replace(sys_flag=_INNER_BATCH)


def test_a_batch_is_encoded_as_the_protocol_specifies() -> None:
    """A broker splits these bytes and stores the messages."""
    assert encode_batch([(b"first", "k\x01v1\x02"), (b"\xff", "")]) == BATCH


def test_a_batch_is_decoded_as_the_protocol_specifies() -> None:
    """The same bytes are decoded."""
    assert decode_batch(BATCH) == [Entry(0, b"first", {"k": "v1"}), Entry(0, b"\xff", {})]


@given(_entries)
def test_batches_survive_a_round_trip(entries: list[tuple[bytes, dict[str, str]]]) -> None:
    """Decoding returns what was encoded, for all inputs."""
    encoded = encode_batch([(body, properties.encode(found)) for body, found in entries])

    assert decode_batch(encoded) == [Entry(0, body, found) for body, found in entries]


def test_properties_that_are_too_long_are_refused() -> None:
    """Their length is a signed 16-bit number. A longer text would corrupt the next message."""
    assert encode_batch([(b"x", "k" * 32_767)])
    with pytest.raises(ValueError, match="32768"):
        encode_batch([(b"x", "k" * 32_768)])


def test_a_truncated_batch_raises_a_protocol_error() -> None:
    """A truncated message must not look complete."""
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
def test_inconsistent_lengths_raise_a_protocol_error(at: int, what: bytes) -> None:
    """No length may exceed its message."""
    with pytest.raises(RemoteProtocolError):
        decode_batch(BATCH[:at] + what + BATCH[at + len(what) :])


@given(st.binary(max_size=100) | st.builds(lambda at, it: BATCH[:at] + it + BATCH[at:], st.integers(0), st.binary()))
def test_any_bytes_are_a_batch_or_raise_a_protocol_error(data: bytes) -> None:
    """No other exception is raised."""
    try:
        entries = decode_batch(data)
    except RemoteProtocolError:
        return

    assert sum(22 + len(entry.body) for entry in entries) <= len(data)


@given(_entries.filter(bool), st.booleans())
def test_a_batch_stored_as_one_record_is_split_into_messages(
    entries: list[tuple[bytes, dict[str, str]]], is_compressed: bool
) -> None:
    """Some topics store batches as one record, but each message has its own offset."""
    body = encode_batch([(body, properties.encode(found)) for body, found in entries])
    flag = _INNER_BATCH | (COMPRESSED if is_compressed else 0)
    stored = encode_record(_BATCHED._replace(sys_flag=flag), packed_body=zlib.compress(body) if is_compressed else body)

    found = decode_records(stored + RECORD_V1)

    assert [(record.body, record.properties) for record in found[:-1]] == entries
    assert [record.queue_offset for record in found[:-1]] == list(range(42, 42 + len(entries)))
    assert {record.topic for record in found} == {"orders"}
    assert found[-1] == _RECORD


@pytest.mark.parametrize("body", [b"", b"no batch", BATCH[:-1], bytes(40)], ids=["empty", "text", "cut", "zeros"])
def test_a_malformed_batch_is_returned_unchanged(body: bytes) -> None:
    """Any producer can set the flag on any message. It must not block the queue."""
    found = decode_records(encode_record(_BATCHED._replace(body=body)) + RECORD_V1)

    assert [record.body for record in found] == [body, b"body"]


def test_a_compressed_batch_does_not_become_millions_of_messages() -> None:
    """A small body can decompress to a hundred megabytes of tiny messages."""
    entry = encode_batch([(b"x", "")])
    stream = zlib.compressobj()
    bomb = b"".join(stream.compress(entry * 10_000) for _ in range(250)) + stream.flush()
    stored = encode_record(_BATCHED._replace(sys_flag=_INNER_BATCH | COMPRESSED), packed_body=bomb)
    tracemalloc.start()

    found = decode_records(stored)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(found) == 1
    assert peak < 140 << 20
