"""Stored messages by column, for callers that read many messages and need few fields.

Decoding without one object per message takes half the time. Records that do not have the common layout (IPv6, long
topics, compressed bodies, batches) are decoded by record.py.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import accumulate

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.record import COMMON, RawRecord, decode_raw

__all__ = ["PulledPage", "decode_page"]

# The fields of the common layout that a page needs: total magic offset sysflag stored-ms body-length.
_NEEDED = struct.Struct(">iI12xq8xi16xq20xi")
# The Record fields among the unpacked fixed part.
_RECORD = slice(2, 13)


class PulledPage:
    """The columns of a page, in offset order. `texts` are the property texts.

    `places` holds, for each message, its position in `data` or the record that contains it.
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
        """Return the total size of bodies and property texts."""
        return sum(map(len, self.bodies)) + sum(map(len, self.texts))

    def fitting(self, max_bytes: int) -> "PulledPage":
        """Return the first messages that fit."""
        if self.bytes <= max_bytes:
            return self
        ends = accumulate(len(body) + len(text) for body, text in zip(self.bodies, self.texts, strict=True))
        return self[: sum(end <= max_bytes for end in ends)]

    def from_offset(self, offset: int) -> "PulledPage":
        """Return the messages from an offset up to the first missing one."""
        offsets = self.offsets
        if offsets == list(range(offset, offset + len(offsets))):
            return self
        # A batch that is stored as one record may start before the requested offset.
        first = next((index for index, found in enumerate(offsets) if found >= offset), len(offsets))
        rest = offsets[first:]
        count = next((index for index, found in enumerate(rest) if found != offset + index), len(rest))
        return self[first : first + count]

    def offset_id(self, index: int) -> str:
        """Return the broker's id of a message."""
        place = self._places[index]
        if isinstance(place, int):
            place = RawRecord("", b"", b"", *COMMON.fixed.unpack_from(self._data, place)[_RECORD])
        return place.offset_id


def decode_page(data: bytes) -> PulledPage:
    """Return all messages of a response. Raise RemoteProtocolError if they are malformed."""
    try:
        page = _uniform_page(data) or _common_page(data)
    except struct.error as error:
        raise RemoteProtocolError(f"malformed record: {error}") from None
    return _page_of(decode_raw(data)) if page is None else page


def _uniform_page(data: bytes) -> PulledPage | None:
    """Decode a page whose records all have the same lengths of body, topic and properties; None for other pages.

    Such pages are common, and are unpacked at once in less than half the time.
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
    """Return the struct of a record with these lengths of record, body and topic name. The rest is the properties."""
    text = total - _NEEDED.size - length - _tail(topic)[1]
    return struct.Struct(f"{_NEEDED.format}{length}sB{topic}xh{text}s") if text >= 0 else None


def _are_common(marks: list[int], kinds: list[int]) -> bool:
    return marks.count(COMMON.magic) == len(marks) and not any(flags & COMMON.excluded_flags for flags in set(kinds))


def _common_page(data: bytes) -> PulledPage | None:
    """Decode a page of records that have the common layout and one topic; None for other pages.

    Checks that can be done for all records at once are done after the loop.
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
    """Return the function that unpacks the lengths of topic and properties after a body, and the size it reads."""
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
