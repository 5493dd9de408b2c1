"""Stored messages by column, for whoever reads many and needs little of each.

To make no record of each halves the cost of taking an answer apart. What is not of the common kind (IPv6, long topics,
compressed, batches kept as one) is left to those who know it: record.py.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import accumulate

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.record import COMMON, RawRecord, decode_raw

__all__ = ["PulledPage", "decode_page"]

# Of the common kind's fixed part what a page needs: total magic offset sysflag stored-ms body-length.
_NEEDED = struct.Struct(">iI12xq8xi16xq20xi")
# Where a record's own fields are among all that is unpacked.
_RECORD = slice(2, 13)


class PulledPage:
    """Messages in the order in which they lie; `texts` are their properties.

    `places`: where each begins in `data`, or the record that it was taken from.
    """

    __slots__ = ("_data", "_places", "bodies", "offsets", "stored_ms", "texts")

    def __init__(
        self,
        offsets: list[int],
        stored_ms: list[int],
        bodies: list[bytes],
        texts: list[bytes],
        places: Sequence[int | RawRecord],
        data: bytes = b"",
    ) -> None:
        self.offsets = offsets
        self.stored_ms = stored_ms
        self.bodies = bodies
        self.texts = texts
        self._places = places
        self._data = data

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, part: slice) -> "PulledPage":
        columns = self.offsets[part], self.stored_ms[part], self.bodies[part], self.texts[part]
        return PulledPage(*columns, self._places[part], self._data)

    @property
    def bytes(self) -> int:
        """All that is of any length."""
        return sum(map(len, self.bodies)) + sum(map(len, self.texts))

    def fitting(self, max_bytes: int) -> "PulledPage":
        """Its first messages, as many as fit."""
        if self.bytes <= max_bytes:
            return self
        ends = accumulate(len(body) + len(text) for body, text in zip(self.bodies, self.texts, strict=True))
        return self[: sum(end <= max_bytes for end in ends)]

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

    def offset_id(self, index: int) -> str:
        """The id that the broker knows a message by."""
        place = self._places[index]
        if isinstance(place, int):
            place = RawRecord("", b"", b"", *COMMON.fixed.unpack_from(self._data, place)[_RECORD])
        return place.offset_id


def decode_page(data: bytes) -> PulledPage:
    """All messages of an answer; RemoteProtocolError if they are broken."""
    try:
        page = _uniform_page(data) or _common_page(data)
    except struct.error as error:
        raise RemoteProtocolError(f"a stored message is broken: {error}") from None
    return _page_of(decode_raw(data)) if page is None else page


def _uniform_page(data: bytes) -> PulledPage | None:
    """A page of messages that all are as long as the first, in every part of them: what machines write often is.

    It is unpacked at once, in less than half the time; None if it is no such page.
    """
    end = len(data)
    if not end:
        return None
    total, *_, length = _NEEDED.unpack_from(data)
    text_at = _NEEDED.size + length
    if total <= text_at or length < 0 or end % total:
        return None
    shape = _shape(total, length, data[text_at])
    if shape is None:
        return None
    rows = list(shape.iter_unpack(data))
    totals, marks, offsets, kinds, stored, lengths, bodies, topics, sizes, texts = map(list, zip(*rows, strict=True))
    same = totals.count(total), lengths.count(length), topics.count(data[text_at]), sizes.count(len(texts[0]))
    if same != (len(rows),) * 4 or not _are_common(marks, kinds):
        return None
    return PulledPage(offsets, stored, bodies, texts, range(0, end, total), data)


@lru_cache(maxsize=1_024)
def _shape(total: int, length: int, topic: int) -> struct.Struct | None:
    """A whole record that is so long, with such a body and topic's name: the rest of it are the properties."""
    text = total - _NEEDED.size - length - _tail(topic)[1]
    return struct.Struct(f"{_NEEDED.format}{length}sB{topic}xh{text}s") if text >= 0 else None


def _are_common(marks: list[int], kinds: list[int]) -> bool:
    return marks.count(COMMON.magic) == len(marks) and not any(flags & COMMON.odd_flags for flags in set(kinds))


def _common_page(data: bytes) -> PulledPage | None:
    """A page of messages of the common kind and of one topic; None if there are others among them.

    In a loop that runs for every message there is, what can be done for all of them at once is done behind it.
    """
    rows: list[tuple[int, int, bytes, bytes, int, int, int]] = []
    at, end = 0, len(data)
    unpack, size, tail, topic, tail_size = _NEEDED.unpack_from, _NEEDED.size, None, 0, 0
    while at < end:
        total, mark, offset, flags, stored_ms, length = unpack(data, at)
        start = at + size
        body_end = start + length
        after = at + total
        if not start <= body_end < after <= end:
            return None
        if tail is None:
            topic = data[body_end]
            tail, tail_size = _tail(topic)
        its_topic, text_length = tail(data, body_end)
        text_start = body_end + tail_size
        text_end = text_start + text_length
        if its_topic != topic or not text_start <= text_end <= after:
            return None
        rows.append((offset, stored_ms, data[start:body_end], data[text_start:text_end], at, mark, flags))
        at = after
    if not rows:
        return PulledPage([], [], [], [], ())
    offsets, stored, bodies, texts, places, marks, kinds = map(list, zip(*rows, strict=True))
    if not _are_common(marks, kinds):
        return None
    return PulledPage(offsets, stored, bodies, texts, places, data)


@cache
def _tail(topic: int) -> tuple[Callable[[bytes, int], tuple[int, int]], int]:
    """What unpacks the lengths behind a body, of a topic's name that is so long and of the properties; its size."""
    lengths = struct.Struct(f">B{topic}xh")
    return lengths.unpack_from, lengths.size


def _page_of(records: Sequence[RawRecord]) -> PulledPage:
    return PulledPage(
        [record.queue_offset for record in records],
        [record.stored_ms for record in records],
        [record.body for record in records],
        [record.properties for record in records],
        records,
    )
