"""Compressed bodies of Java clients are decompressed; malformed and excessive ones are returned unchanged."""

import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from wire_bytes import RECORD_V1

from mqgate.rocketmq.remoting.compression import COMPRESSED, LZ4, ZLIB, ZSTD, unpack
from mqgate.rocketmq.remoting.record import Record, decode_records, encode_record

_RECORD = decode_records(RECORD_V1)[0]
_MEBIBYTE = 1 << 20


def _zstd_stream(body: bytes) -> bytes:
    """Compress as Java does: without the size of the body."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(body) + stream.flush()


_PACKERS = {
    "old": (0, zlib.compress),
    "zlib": (ZLIB, zlib.compress),
    "lz4": (LZ4, lz4.frame.compress),
    "lz4-no-size": (LZ4, lambda body: lz4.frame.compress(body, store_size=False)),
    "zstd": (ZSTD, zstandard.ZstdCompressor().compress),
    "zstd-no-size": (ZSTD, _zstd_stream),
}
_kinds = pytest.mark.parametrize("kind", _PACKERS)


def _stored(kind: str, body: bytes) -> tuple[bytes, bytes]:
    """Return a stored message and its compressed body."""
    flag, pack = _PACKERS[kind]
    return _as_stored(flag, pack(body)), pack(body)


def _as_stored(flag: int, packed: bytes, record: Record = _RECORD) -> bytes:
    return encode_record(record._replace(sys_flag=COMPRESSED | flag), packed_body=packed)


@given(st.sampled_from(sorted(_PACKERS)), st.binary(min_size=1, max_size=300), st.integers(1, 50))
def test_compressed_bodies_are_decompressed(kind: str, piece: bytes, times: int) -> None:
    """Java producers compress bodies larger than 4 KiB, with different algorithms in different versions."""
    stored, _ = _stored(kind, piece * times)

    assert decode_records(stored)[0].body == piece * times


@_kinds
def test_the_size_limit_is_exact(kind: str) -> None:
    """A body of the maximum size is decompressed; one more byte is not."""
    flag, pack = _PACKERS[kind]
    packed = pack(b"x" * 1000)

    assert unpack(packed, flag, 1000) == b"x" * 1000
    assert unpack(packed, flag, 999) is None


@_kinds
def test_a_truncated_body_is_returned_unchanged(kind: str) -> None:
    """A truncated message must not look complete."""
    flag, pack = _PACKERS[kind]
    whole = pack(bytes(range(256)) * 40)

    for cut in range(1, len(whole)):
        assert decode_records(_as_stored(flag, whole[:cut]))[0].body == whole[:cut]


@_kinds
@given(junk=st.binary(min_size=1, max_size=200))
def test_random_bytes_are_returned_unchanged(kind: str, junk: bytes) -> None:
    """A producer may set the flag without compressing. It must not block the queue."""
    (record,) = decode_records(_as_stored(_PACKERS[kind][0], junk))

    assert record.body == junk or record.body == unpack(junk, _PACKERS[kind][0], 1 << 26)


@given(st.sampled_from(sorted(_PACKERS)), st.integers(0), st.integers(0, 255))
def test_a_damaged_body_raises_nothing(kind: str, at: int, value: int) -> None:
    """All errors of the decompressors are handled."""
    flag, pack = _PACKERS[kind]
    packed = bytearray(pack(b"some text, and again some text" * 20))
    packed[at % len(packed)] = value

    assert decode_records(_as_stored(flag, bytes(packed)))[0].body


def test_an_unknown_compression_type_is_returned_unchanged() -> None:
    """A later version may add a type."""
    assert decode_records(_as_stored(0x700, b"packed somehow"))[0].body == b"packed somehow"


@_kinds
def test_an_empty_body_is_returned_unchanged(kind: str) -> None:
    """No broker accepts an empty body, so an empty message could not be sent again."""
    stored, packed = _stored(kind, b"")

    assert decode_records(stored)[0].body == packed


def test_a_claimed_size_allocates_no_memory() -> None:
    """Twelve bytes can claim that a petabyte follows."""
    claim = bytes.fromhex("28b52ffd e0 00000000 00000400".replace(" ", "")) + b"\x01\x00\x00"

    assert zstandard.frame_content_size(claim) == 1 << 50
    assert decode_records(_as_stored(ZSTD, claim))[0].body == claim


@pytest.mark.parametrize("kind", ["zlib", "zstd", "zstd-no-size"])
def test_a_decompression_bomb_is_returned_unchanged(kind: str) -> None:
    """Kilobytes that decompress to a gigabyte must not use that memory."""
    flag, pack = _PACKERS[kind]
    packed = _bomb(kind) if kind == "zlib" else pack(bytes(100 * _MEBIBYTE))
    stored = _as_stored(flag, packed)
    tracemalloc.start()

    records = decode_records(stored)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert records[0].body == packed
    assert peak < 140 * _MEBIBYTE


def _bomb(_: str) -> bytes:
    stream = zlib.compressobj(9)
    return b"".join(stream.compress(bytes(_MEBIBYTE)) for _ in range(100)) + stream.flush()


def test_the_bodies_of_one_response_share_a_limit() -> None:
    """Each body may be within its limit. Together they are limited too, and the other messages are returned."""
    bomb = _as_stored(ZSTD, zstandard.ZstdCompressor().compress(bytes(60 * _MEBIBYTE)))
    plain = encode_record(_RECORD)

    records = decode_records((bomb + plain) * 8)

    unpacked = [len(record.body) for record in records if len(record.body) > _MEBIBYTE]
    assert unpacked == [60 * _MEBIBYTE] * 4
    assert [record.body for record in records[1::2]] == [_RECORD.body] * 8
