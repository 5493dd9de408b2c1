"""Receipt times: the grant time of a lease and the store times of its messages, carried in receipts.

A lease may be settled at another gateway than the one that granted it. The times in the receipt let that gateway
record how long the delivery took, without I/O. They are used for statistics only. Malformed values count as unknown.

    of a token     the grant time in milliseconds, and for a batch the store times of up to nine messages, evenly
                   spread from the first to the last, each as the difference to the number before; hex, with commas
    of a message   its store time, after its offset
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter, sub

from mqgate.core.message import milliseconds
from mqgate.core.receipt import stamps_of

__all__ = ["granted_at", "of_messages", "stamps", "stored_at", "stored_at_each"]

_MAX_TIMES = 9
# Eleven hex digits, enough until the year 2527, and a sign.
_MAX_DIGITS = 12
_hex = "{:x}".format


def stamps(granted: datetime, stored_ms: Sequence[int] = ()) -> str:
    """Return the times for a token: of a range, or of a batch whose messages have these store times."""
    first = milliseconds(granted)
    times = stored_ms if len(stored_ms) <= _MAX_TIMES else itemgetter(*_sampled_indexes(len(stored_ms)))(stored_ms)
    return ",".join(map(_hex, (first, *map(sub, times, (first, *times)))))


def of_messages(offsets: Sequence[int], stored_ms: Sequence[int]) -> list[str]:
    """Return the offset and store time of each message, for the receipts of a range."""
    return [f"{offset}.{ms:x}" for offset, ms in zip(offsets, stored_ms, strict=True)]


def granted_at(token: str) -> int | None:
    """Return the grant time of a token."""
    return _numbers(token)[0]


def stored_at(rest: str) -> int | None:
    """Return the store time of a message from the part of its receipt after the token."""
    text = rest.partition(".")[2].partition(".")[0]
    return _number(text) if text.isalnum() else None


def stored_at_each(token: str, count: int) -> Sequence[int | None]:
    """Return the store times of the `count` messages of a batch from its token, None where unknown."""
    granted, *steps = _numbers(token)
    indexes = _sampled_indexes(count)
    if granted is None or len(steps) != len(indexes):
        return [None] * count
    known, last = [], granted
    for step in steps:
        last += step or 0
        known.append(last)
    return _interpolate(known, count)


@lru_cache(maxsize=1024)
def _numbers(token: str) -> Sequence[int | None]:
    """Return the numbers of a token. Cached because the messages of a range share it."""
    return [_number(part) for part in stamps_of(token).split(",")]


def _number(text: str) -> int | None:
    try:
        return int(text, 16) if len(text) <= _MAX_DIGITS else None
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _sampled_indexes(count: int) -> Sequence[int]:
    """Return the indexes of the messages of a batch whose store times are carried."""
    if count <= _MAX_TIMES:
        return list(range(count))
    return [number * (count - 1) // (_MAX_TIMES - 1) for number in range(_MAX_TIMES)]


@lru_cache(maxsize=64)
def _places(count: int) -> Sequence[tuple[int, int, int]]:
    """Return for each message after the first the known time before it, its distance from there, and to the next."""
    pairs = enumerate(pairwise(_sampled_indexes(count)))
    return [(known, step, high - low) for known, (low, high) in pairs for step in range(1, high - low + 1)]


def _interpolate(known: Sequence[int], count: int) -> list[int]:
    """Return a time for every message. Times between two known ones are interpolated linearly."""
    steps = list(map(sub, known[1:], known))
    return [*known[:1], *[known[at] + steps[at] * step // width for at, step, width in _places(count)]]
