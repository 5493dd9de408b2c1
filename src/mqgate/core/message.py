"""A message before and after it is stored.

Tuples, not dataclasses: some thirty of them are made for every batch, and a frozen dataclass costs five times as much.
"""

import os
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from operator import attrgetter
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# Offsets of the embedded engine have 40 bits.
END_OF_OFFSETS = 1 << 40
NO_PROPERTIES: Mapping[str, str] = {}


def milliseconds(instant: datetime) -> int:
    """An instant as wires and stores count it."""
    return (instant - _EPOCH) // _MILLISECOND


def instant(ms: int) -> datetime:
    """The instant that a wire or a store counted."""
    return _EPOCH + ms * _MILLISECOND


class Draft(NamedTuple):
    """A message on its way in. `slot` picks its queue, modulo the registered queues; None: any queue that is up."""

    id: str
    body: bytes
    key: str | None = None
    tag: str | None = None
    properties: Mapping[str, str] = NO_PROPERTIES
    slot: int | None = None


class Stored(NamedTuple):
    """Where a message came to lie."""

    queue: str
    offset: int
    stored_at: datetime
    is_degraded: bool = False


class Message(NamedTuple):
    """A message as it lies in its queue; the time as its store counts it, because few ask for more than that."""

    id: str
    topic: str
    queue: str
    offset: int
    body: bytes
    key: str | None
    tag: str | None
    properties: Mapping[str, str]
    stored_ms: int

    @property
    def stored_at(self) -> datetime:
        return instant(self.stored_ms)


# Of many messages, without a loop of our own.
body_of = attrgetter("body")
stored_ms_of = attrgetter("stored_ms")


class _Numbers:
    """What tells the ids of a millisecond apart: 48 random bits of this process, and a count from a random start.

    An id must be unique, not secret. Neighbours that differ in a few digits take a quarter of the room where they are
    packed, as events are, and less time to make than random ones.
    """

    __slots__ = ("next", "own")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.own = os.urandom(6).hex()
        self.next = count(int.from_bytes(os.urandom(4))).__next__


_numbers = _Numbers()
# A child that is forked must not go on with its parent's.
os.register_at_fork(after_in_child=_numbers.begin)


def new_id(now_ms: int) -> str:
    """A fresh message id: 32 hex digits, in order of time, so that an index of them grows at its end."""
    return f"{now_ms:012x}{_numbers.own}{_numbers.next() & 0xFFFFFFFF:08x}"


def slot_of(key: str) -> int:
    """The number that a message key picks its queue by: CRC-32 of its UTF-8 bytes, the same in every release."""
    return zlib.crc32(key.encode())
