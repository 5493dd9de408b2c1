"""Compressed bodies: those of Java's clients are unpacked, bombs and broken ones come as they lie there."""

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
    """As Java writes it: without saying how long the body is."""
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
    """A stored message, and its body as it lies there."""
    flag, pack = _PACKERS[kind]
    return _as_stored(flag, pack(body)), pack(body)


def _as_stored(flag: int, packed: bytes, record: Record = _RECORD) -> bytes:
    return encode_record(record._replace(sys_flag=COMPRESSED | flag), packed_body=packed)


@given(st.sampled_from(sorted(_PACKERS)), st.binary(min_size=1, max_size=300), st.integers(1, 50))
def test_compressed_bodies_are_unpacked(kind: str, piece: bytes, times: int) -> None:
    """Java's producers compress what is larger than four kilobytes, each version in its own way."""
    stored, _ = _stored(kind, piece * times)

    assert decode_records(stored)[0].body == piece * times


@_kinds
def test_the_limit_is_kept_to_the_byte(kind: str) -> None:
    """A body of just the allowed size is a message; one byte more is none."""
    flag, pack = _PACKERS[kind]
    packed = pack(b"x" * 1000)

    assert unpack(packed, flag, 1000) == b"x" * 1000
    assert unpack(packed, flag, 999) is None


@_kinds
def test_a_body_cut_short_comes_as_it_lies_there(kind: str) -> None:
    """Half a message must not look like a whole one."""
    flag, pack = _PACKERS[kind]
    whole = pack(bytes(range(256)) * 40)

    for cut in range(1, len(whole)):
        assert decode_records(_as_stored(flag, whole[:cut]))[0].body == whole[:cut]


@_kinds
@given(junk=st.binary(min_size=1, max_size=200))
def test_junk_comes_as_it_lies_there(kind: str, junk: bytes) -> None:
    """A producer may say compressed and lie; the queue goes on."""
    (record,) = decode_records(_as_stored(_PACKERS[kind][0], junk))

    assert record.body == junk or record.body == unpack(junk, _PACKERS[kind][0], 1 << 26)


@given(st.sampled_from(sorted(_PACKERS)), st.integers(0), st.integers(0, 255))
def test_a_damaged_body_is_some_body(kind: str, at: int, value: int) -> None:
    """Decompressors see the worst of all inputs; none of their errors gets through."""
    flag, pack = _PACKERS[kind]
    packed = bytearray(pack(b"some text, and again some text" * 20))
    packed[at % len(packed)] = value

    assert decode_records(_as_stored(flag, bytes(packed)))[0].body


def test_an_unknown_kind_comes_as_it_lies_there() -> None:
    """A later version may add one."""
    assert decode_records(_as_stored(0x700, b"packed somehow"))[0].body == b"packed somehow"


@_kinds
def test_an_empty_body_comes_as_it_lies_there(kind: str) -> None:
    """No broker stores an empty body, so what unpacks to one could never be sent on."""
    stored, packed = _stored(kind, b"")

    assert decode_records(stored)[0].body == packed


def test_a_size_that_is_only_claimed_takes_no_memory() -> None:
    """Twelve bytes may say that a petabyte follows."""
    claim = bytes.fromhex("28b52ffd e0 00000000 00000400".replace(" ", "")) + b"\x01\x00\x00"

    assert zstandard.frame_content_size(claim) == 1 << 50
    assert decode_records(_as_stored(ZSTD, claim))[0].body == claim


@pytest.mark.parametrize("kind", ["zlib", "zstd", "zstd-no-size"])
def test_a_bomb_comes_as_it_lies_there(kind: str) -> None:
    """Kilobytes that claim to be a gigabyte must not become one."""
    flag, pack = _PACKERS[kind]
    packed = _bomb(kind) if kind == "zlib" else pack(bytes(100 * _MEBIBYTE))
    stored = _as_stored(flag, packed)
    tracemalloc.start()

    records = decode_records(stored)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert records[0].body == packed
    assert most < 140 * _MEBIBYTE


def _bomb(_: str) -> bytes:
    stream = zlib.compressobj(9)
    return b"".join(stream.compress(bytes(_MEBIBYTE)) for _ in range(100)) + stream.flush()


def test_many_small_bombs_are_one_large_bomb() -> None:
    """Each may be within its limit; an answer as a whole is too, and its other messages come all the same."""
    bomb = _as_stored(ZSTD, zstandard.ZstdCompressor().compress(bytes(60 * _MEBIBYTE)))
    plain = encode_record(_RECORD)

    records = decode_records((bomb + plain) * 8)

    unpacked = [len(each.body) for each in records if len(each.body) > _MEBIBYTE]
    assert unpacked == [60 * _MEBIBYTE] * 4
    assert [each.body for each in records[1::2]] == [_RECORD.body] * 8
