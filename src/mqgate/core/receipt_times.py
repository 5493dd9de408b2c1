"""When a lease began and when its messages were stored, as receipts carry it.

Whoever settles a lease may be told by another gateway than the one that gave it, and how long it took is to be known
there without asking anybody. It feeds statistics only: nothing is decided by it, and what makes no sense is unknown.

    of a token     when the lease began, in milliseconds, and for a batch up to nine of its messages' times, evenly
                   spread from the first to the last, each as the difference to the number before; hex, with commas
    of a message   when it was stored, behind its offset
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter, sub

from mqgate.core.message import milliseconds
from mqgate.core.receipt import stamps_of

__all__ = ["granted_at", "of_messages", "stamps", "stored_at", "stored_at_each"]

_MOST = 9
# Digits and a sign: until the year 2527.
_LONGEST = 12
_hex = "{:x}".format


def stamps(began: datetime, stored_ms: Sequence[int] = ()) -> str:
    """For a token: of a range, or of a batch of messages that were stored then."""
    first = milliseconds(began)
    times = stored_ms if len(stored_ms) <= _MOST else itemgetter(*_places(len(stored_ms)))(stored_ms)
    return ",".join(map(_hex, (first, *map(sub, times, (first, *times)))))


def of_messages(offsets: Sequence[int], stored_ms: Sequence[int]) -> list[str]:
    """For the receipts of a range's messages: the offset and stamp of each."""
    return [f"{offset}.{ms:x}" for offset, ms in zip(offsets, stored_ms, strict=True)]


def granted_at(token: str) -> int | None:
    """When the lease of a token began."""
    return _told(token)[0]


def stored_at(rest: str) -> int | None:
    """When a message was stored, by what its receipt has behind the token."""
    stamp = rest.partition(".")[2].partition(".")[0]
    return _number(stamp) if stamp.isalnum() else None


def stored_at_each(token: str, count: int) -> Sequence[int | None]:
    """When the messages of a batch were stored, by the token of so many."""
    begin, *steps = _told(token)
    places = _places(count)
    if begin is None or len(steps) != len(places):
        return [None] * count
    known, last = [], begin
    for step in steps:
        last += step or 0
        known.append(last)
    return _spread(known, places)


@lru_cache(maxsize=1024)
def _told(token: str) -> Sequence[int | None]:
    """The numbers of a token; remembered, because the messages of a range share it."""
    return [_number(part) for part in stamps_of(token).split(",")]


def _number(text: str) -> int | None:
    try:
        return int(text, 16) if len(text) <= _LONGEST else None
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _places(count: int) -> Sequence[int]:
    """Which messages of a batch are told of."""
    if count <= _MOST:
        return list(range(count))
    return [number * (count - 1) // (_MOST - 1) for number in range(_MOST)]


def _spread(known: Sequence[int], places: Sequence[int]) -> list[int]:
    """A time for every message: those between two that are known lie on the line between."""
    found = list(known[:1])
    for (low, high), (first, last) in zip(pairwise(places), pairwise(known), strict=True):
        found += [first + (last - first) * step // (high - low) for step in range(1, high - low + 1)]
    return found
