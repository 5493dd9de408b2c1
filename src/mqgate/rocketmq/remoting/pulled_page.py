"""Stored messages by column, for whoever reads many and needs little of each.

To make no record of each halves the cost of taking an answer apart. What is not of the common kind (IPv6, long topics,
compressed, batches kept as one) is left to those who know it: record.py.
"""

import struct
from collections.abc import Sequence
from typing import Any

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.record import COMMON, RawRecord, decode_raw

__all__ = ["PulledPage", "decode_page"]

_SHORT = struct.Struct(">h")
# Where these are among what is unpacked; a record has the same, but for the first two, behind its own three.
_OFFSET, _STORED_MS, _BODY_LENGTH = 4, 8, 13
_BEFORE = (0, 0)
_OWN = 3


class PulledPage:
    """Messages in the order in which they lie; `texts` are their properties."""

    __slots__ = ("_fixed", "bodies", "texts")

    def __init__(self, fixed: Sequence[tuple[Any, ...]], bodies: Sequence[bytes], texts: Sequence[bytes]) -> None:
        self._fixed = fixed
        self.bodies = bodies
        self.texts = texts

    def __len__(self) -> int:
        return len(self._fixed)

    def __getitem__(self, part: slice) -> "PulledPage":
        return PulledPage(self._fixed[part], self.bodies[part], self.texts[part])

    def from_offset(self, offset: int) -> "PulledPage":
        """The messages from an offset on, up to the first that is missing."""
        offsets = self.offsets
        if offsets == list(range(offset, offset + len(offsets))):
            return self
        # A batch that is kept as one record may begin before what was asked for.
        first = next((index for index, each in enumerate(offsets) if each >= offset), len(offsets))
        rest = offsets[first:]
        count = next((index for index, each in enumerate(rest) if each != offset + index), len(rest))
        return self[first : first + count]

    @property
    def offsets(self) -> list[int]:
        return [each[_OFFSET] for each in self._fixed]

    @property
    def stored_ms(self) -> list[int]:
        return [each[_STORED_MS] for each in self._fixed]

    def offset_id(self, index: int) -> str:
        """The id that the broker knows a message by."""
        return RawRecord("", b"", b"", *self._fixed[index][len(_BEFORE) : _BODY_LENGTH]).offset_id


def decode_page(data: bytes) -> PulledPage:
    """All messages of an answer; RemoteProtocolError if they are broken."""
    fixed: list[tuple[Any, ...]] = []
    bodies: list[bytes] = []
    texts: list[bytes] = []
    at, end = 0, len(data)
    unpack_fixed, unpack_short, size = COMMON.fixed.unpack_from, _SHORT.unpack_from, COMMON.fixed.size
    magic, odd = COMMON.magic, COMMON.odd_flags
    try:
        while at < end:
            parts = unpack_fixed(data, at)
            start, after = at + size, at + parts[0]
            body_end = start + parts[_BODY_LENGTH]
            if parts[1] != magic or parts[6] & odd or not start <= body_end < after <= end:
                return _page_of(decode_raw(data))
            topic_end = body_end + 1 + data[body_end]
            text_start = topic_end + 2
            text_end = text_start + unpack_short(data, topic_end)[0]
            if not text_start <= text_end <= after:
                return _page_of(decode_raw(data))
            fixed.append(parts)
            bodies.append(data[start:body_end])
            texts.append(data[text_start:text_end])
            at = after
    except struct.error as error:
        raise RemoteProtocolError(f"a stored message is broken: {error}") from None
    return PulledPage(fixed, bodies, texts)


def _page_of(records: Sequence[RawRecord]) -> PulledPage:
    return PulledPage(
        [_BEFORE + record[_OWN:] for record in records],
        [record.body for record in records],
        [record.properties for record in records],
    )
