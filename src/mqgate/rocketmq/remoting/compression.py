"""Bodies that their producers have compressed. What they unpack to is bounded: kilobytes can claim to be gigabytes."""

import zlib

import lz4.frame  # type: ignore[import-untyped] # it has no types
import zstandard

__all__ = ["COMPRESSED", "LZ4", "ZLIB", "ZSTD", "unpack"]

# Bits of a message's sysFlag.
COMPRESSED = 0x1
ZLIB, LZ4, ZSTD = 0x300, 0x100, 0x200
_KIND = 0x700
# What zstd's strongest levels look back; memory that is taken on a frame's word, and given back at once.
_MAX_ZSTD_WINDOW = 64 << 20
# Producers older than the kinds set none.
_OLD_ZLIB = 0


def unpack(body: bytes, sys_flag: int, max_bytes: int) -> bytes | None:
    """The body as it was before; None if it is broken, cut short, empty, or would be longer than allowed."""
    kind = sys_flag & _KIND
    try:
        if kind == LZ4:
            unpacked = _lz4(body, max_bytes)
        elif kind == ZSTD:
            unpacked = _zstd(body, max_bytes)
        elif kind in {_OLD_ZLIB, ZLIB}:
            unpacked = _zlib(body, max_bytes)
        else:
            return None
    except (zlib.error, RuntimeError, zstandard.ZstdError):
        return None
    # No broker takes an empty body, so whatever is empty now could never be sent on.
    return unpacked or None


def _zlib(body: bytes, max_bytes: int) -> bytes | None:
    stream = zlib.decompressobj()
    # One byte more: a stream that fills its room exactly has not yet seen its own end.
    unpacked = stream.decompress(body, max_bytes + 1)
    return unpacked if stream.eof and len(unpacked) <= max_bytes else None


def _lz4(body: bytes, max_bytes: int) -> bytes | None:
    with lz4.frame.LZ4FrameDecompressor() as stream:
        unpacked = bytes(stream.decompress(body, max_length=max_bytes + 1))
        return unpacked if stream.eof and len(unpacked) <= max_bytes else None


def _zstd(body: bytes, max_bytes: int) -> bytes | None:
    # The size that a frame claims is believed when memory is taken, whatever limit is given.
    if zstandard.frame_content_size(body) > max_bytes:
        return None
    return zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).decompress(body, max_output_size=max_bytes)
