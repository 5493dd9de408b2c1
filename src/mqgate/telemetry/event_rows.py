"""From what was noted to rows of `events/1`; away from the hot paths, in the thread that encodes them.

What happens to every message is noted as it comes, in a list of its own, and becomes columns all at once: a row at a
time took longer than the publish that it tells of may.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from typing import NamedTuple

from mqgate.core.entries import Group
from mqgate.core.events import EVENTS, Kind
from mqgate.core.lease import Outcome, Settled, Settlement, Verb
from mqgate.core.message import Stored
from mqgate.core.stamps import times_of

__all__ = ["Active", "Notes", "Part", "Spot", "instants", "parts_of"]

# Topics and groups to which something happened; without a group: to the topic.
Active = set[tuple[str, str | None]]
# Queue, offset, when it was stored, its size, the number of the delivery.
Spot = tuple[str, int, datetime, int, int]
_NAMES = tuple(name for name, _ in EVENTS.columns)
_OF_SETTLED = (
    *("at", "kind", "topic", "queue", "offset", "group", "client"),
    *("stored_at", "granted_at", "outcome", "reason"),
)
_SETTLED = {Verb.ACK: Kind.ACKED.value, Verb.NACK: Kind.NACKED.value, Verb.EXTEND: Kind.EXTENDED.value}


class Notes(NamedTuple):
    """What happened, each list in its order. Every note begins with the time."""

    # Topic, producer; of each message that was stored its id, its size and where.
    published: list[tuple[int, str, str, Sequence[tuple[str, int, Stored]]]]
    delivered: list[tuple[int, Group, str, Sequence[Spot]]]
    settled: list[tuple[int, Group, str, Sequence[Settlement], Sequence[Settled]]]
    # All else: so many rows. A list says what each of them has, anything else is the same in all.
    others: list[tuple[int, Mapping[str, object]]]


class Part(NamedTuple):
    """So many rows: by column what each of them has, or what is the same in all. What is not there is None."""

    number: int
    columns: Mapping[str, object]


_NOTHING = Part(0, {})


def parts_of(notes: Notes) -> tuple[list[Part], Active]:
    """All rows, and whom they are about."""
    active: Active = set()
    parts = [
        _published(notes.published, active),
        _delivered(notes.delivered, active),
        _settled(notes.settled, active),
        _others(notes.others, active),
    ]
    return [part for part in parts if part.number], active


def _published(notes: Sequence[tuple[int, str, str, Sequence[tuple[str, int, Stored]]]], active: Active) -> Part:
    if not notes:
        return _NOTHING
    at, topic, producer, stored = zip(*notes, strict=True)
    active.update(zip(topic, repeat(None)))
    counts = [len(some) for some in stored]
    ids, sizes, places = zip(*chain.from_iterable(stored), strict=True)
    columns = {
        "at": _each(at, counts),
        "kind": Kind.PUBLISHED.value,
        "topic": _each(topic, counts),
        "queue": [place.queue for place in places],
        "offset": [place.offset for place in places],
        "count": 1,
        "producer": _each([name or None for name in producer], counts),
        "id": ids,
        "stored_at": instants(place.stored_at for place in places),
        "bytes": sizes,
    }
    return Part(len(ids), columns)


def _delivered(notes: Sequence[tuple[int, Group, str, Sequence[Spot]]], active: Active) -> Part:
    if not notes:
        return _NOTHING
    at, groups, client, spots = zip(*notes, strict=True)
    topic, names = [group.topic for group in groups], [group.name for group in groups]
    active.update(zip(topic, names, strict=True))
    counts = [len(some) for some in spots]
    queue, offset, stored_at, size, delivery = zip(*chain.from_iterable(spots), strict=True)
    columns = {
        "at": _each(at, counts),
        "kind": Kind.DELIVERED.value,
        "topic": _each(topic, counts),
        "queue": queue,
        "offset": offset,
        "count": 1,
        "group": _each(names, counts),
        "client": _each([name or None for name in client], counts),
        "stored_at": instants(stored_at),
        "delivery": delivery,
        "bytes": size,
    }
    return Part(len(queue), columns)


def _settled(notes: Sequence[tuple[int, Group, str, Sequence[Settlement], Sequence[Settled]]], active: Active) -> Part:
    """Done, with the times that the receipts carry; or refused. What was done before is no news."""
    rows: list[tuple[object, ...]] = []
    for at, group, client, settlements, outcomes in notes:
        topic, name = group.topic, group.name
        active.add((topic, name))
        for (verb, lease, through, _, reason, _, receipt), (outcome, *_) in zip(settlements, outcomes, strict=True):
            who = client or lease.client or None
            if outcome.is_new:
                offsets = range(lease.start, lease.next if through is None else through + 1)
                granted_at, stored_at = times_of(receipt, lease.next - lease.start)
                kind, queue, how = _SETTLED[verb], lease.queue, outcome.value
                rows += [
                    (at, kind, topic, queue, offset, name, who, stored, granted_at, how, reason)
                    for offset, stored in zip(offsets, stored_at, strict=False)
                ]
            elif outcome is not Outcome.DUPLICATE:
                rows.append((at, Kind.REFUSED.value, topic, None, None, name, who, None, None, outcome.value, None))
    columns: dict[str, object] = dict(zip(_OF_SETTLED, zip(*rows, strict=True), strict=bool(rows)))
    return Part(len(rows), columns | {"count": 1})


def _others(notes: Sequence[tuple[int, Mapping[str, object]]], active: Active) -> Part:
    columns: dict[str, list[object]] = {name: [] for name in _NAMES}
    for number, given in notes:
        active.add((str(given["topic"]), given.get("group")))  # type: ignore[arg-type]  # a name
        for name, column in columns.items():
            value = given.get(name)
            column.extend(value if type(value) is list else [value] * number)
    return Part(len(columns["at"]), columns)


def _each(values: Sequence[object], counts: Sequence[int]) -> object:
    """What was noted once for so many rows each."""
    if values.count(values[0]) == len(values):
        return values[0]
    return list(chain.from_iterable(map(repeat, values, counts)))


def instants(values: Iterable[datetime]) -> list[int]:
    """In milliseconds; the messages of one append share one object."""
    found: list[int] = []
    last, ms = None, 0
    for value in values:
        if value is not last:
            last, ms = value, round(value.timestamp() * 1000)
        found.append(ms)
    return found
