"""A message before and after it is stored.

These are tuples because every batch creates many of them, and creating a frozen dataclass takes five times as long.
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
    """Return an instant as milliseconds since 1970."""
    return (instant - _EPOCH) // _MILLISECOND


def instant(ms: int) -> datetime:
    """Return the instant of milliseconds since 1970."""
    return _EPOCH + ms * _MILLISECOND


class Draft(NamedTuple):
    """A message to be stored. `slot` modulo the queue count selects its queue; None selects any available queue."""

    id: str
    body: bytes
    key: str | None = None
    tag: str | None = None
    properties: Mapping[str, str] = NO_PROPERTIES
    slot: int | None = None


class Stored(NamedTuple):
    """The queue, offset and time at which a message was stored."""

    queue: str
    offset: int
    stored_at: datetime
    is_degraded: bool = False


class Message(NamedTuple):
    """A stored message. The store time stays in milliseconds because few callers need a datetime."""

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


# For use with `map`.
body_of = attrgetter("body")
stored_ms_of = attrgetter("stored_ms")


class _Numbers:
    """The part of an id that is unique within a millisecond: 48 random bits of the process, and a counter.

    An id must be unique, not secret. Compared with random ids, consecutive numbers compress to a quarter of the size
    in event batches, and take less time to create.
    """

    __slots__ = ("next", "prefix")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.prefix = os.urandom(6).hex()
        self.next = count(int.from_bytes(os.urandom(4))).__next__


_numbers = _Numbers()
# A forked child must not continue the numbers of its parent.
os.register_at_fork(after_in_child=_numbers.restart)


def new_id(now_ms: int) -> str:
    """Return a new message id: 32 hex digits, ordered by time, so that an index of ids grows at its end."""
    return f"{now_ms:012x}{_numbers.prefix}{_numbers.next() & 0xFFFFFFFF:08x}"


def slot_of(key: str) -> int:
    """Return the slot of a message key: CRC-32 of its UTF-8 bytes, the same in every release."""
    return zlib.crc32(key.encode())
