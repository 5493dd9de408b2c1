"""Decompression of message bodies. The output is limited, because kilobytes can decompress to gigabytes."""

import zlib

import lz4.frame  # type: ignore[import-untyped] # it has no types
import zstandard

__all__ = ["COMPRESSED", "LZ4", "ZLIB", "ZSTD", "unpack"]

# Bits of a message's sysFlag.
COMPRESSED = 0x1
ZLIB, LZ4, ZSTD = 0x300, 0x100, 0x200
_KIND = 0x700
# The window of the highest zstd levels. A frame header can cause an allocation of this size, which is freed at once.
_MAX_ZSTD_WINDOW = 64 << 20
# Old producers set no compression type.
_OLD_ZLIB = 0


def unpack(body: bytes, sys_flag: int, max_bytes: int) -> bytes | None:
    """Return the decompressed body; None if it is malformed, truncated, empty, or longer than `max_bytes`."""
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
    # No broker accepts an empty body, so an empty message could not be sent again.
    return unpacked or None


def _zlib(body: bytes, max_bytes: int) -> bytes | None:
    stream = zlib.decompressobj()
    # One more byte: zlib does not report the end of a stream that fills the output exactly.
    unpacked = stream.decompress(body, max_bytes + 1)
    return unpacked if stream.eof and len(unpacked) <= max_bytes else None


def _lz4(body: bytes, max_bytes: int) -> bytes | None:
    with lz4.frame.LZ4FrameDecompressor() as stream:
        unpacked = bytes(stream.decompress(body, max_length=max_bytes + 1))
        return unpacked if stream.eof and len(unpacked) <= max_bytes else None


def _zstd(body: bytes, max_bytes: int) -> bytes | None:
    # zstandard allocates the size in the frame header, whatever limit is given.
    if zstandard.frame_content_size(body) > max_bytes:
        return None
    return zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).decompress(body, max_output_size=max_bytes)
