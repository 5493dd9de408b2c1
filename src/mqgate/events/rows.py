"""From what was noted to rows of `events/1`; away from the hot paths, in the thread that encodes them.

What happens to every message is noted as it comes, in a list of its own, and becomes columns all at once: a row at a
time took longer than the publish that it tells of may.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from mqgate.core.entries import Group
from mqgate.core.events import EVENTS, Kind
from mqgate.core.lease import Settlement, SettlementOutcome, SettlementResult, Verb
from mqgate.core.receipt_times import granted_at, stored_at, stored_at_each

__all__ = ["BETWEEN", "PACKED", "Active", "Joined", "Notes", "Part", "Run", "instants", "packed", "parts_of"]

# Topics and groups to which something happened; without a group: to the topic.
Active = set[tuple[str, str | None]]
_NAMES = tuple(name for name, _ in EVENTS.columns)
_SETTLED = {Verb.ACK: Kind.ACKED.value, Verb.NACK: Kind.NACKED.value, Verb.EXTEND: Kind.EXTENDED.value}
# Which settlements changed something, in words: a member's own value is looked up by slow means.
_NEW = {outcome: outcome.value for outcome in SettlementOutcome if outcome.is_new}


class Run(NamedTuple):
    """Messages of one grant: where they lie, when they were stored, their sizes; the number of the delivery."""

    queue: str
    delivery: int
    offsets: Sequence[int]
    stored_ms: Sequence[int]
    sizes: Sequence[int]


# Publishes of one message: time, topic, producer or None, id, size, queue, offset, when stored; then those of the next.
# A tuple each would be one thing more for garbage collection to look at, again and again until it is written.
Singles = list[Any]
_OF_SINGLE = 8
# A publish of several: the same, but in the place of each of the last five a column. Ids are one text, numbers are
# packed; a queue or a time alone is that of all.
Several = tuple[int, str, str | None, str, bytes, tuple[str, ...], bytes, tuple[datetime, ...]]
# What no message can hold.
BETWEEN = "\x01"
# Bytes of a packed number.
PACKED = 8
Delivered = tuple[int, Group, str, Run]
Settlements = tuple[int, Group, str, Sequence[Settlement], Sequence[SettlementResult]]


class Notes(NamedTuple):
    """What happened, each list in its order. Every note but the last kind begins with the time."""

    published: list[Singles | Several]
    delivered: list[Delivered]
    settled: list[Settlements]
    # All else: so many rows. A list says what each of them has, anything else is the same in all.
    others: list[tuple[int, Mapping[str, object]]]


class Joined(tuple[str, ...]):
    """A column of texts, some of them in each of these, with `BETWEEN` in between."""

    __slots__ = ()


class Part(NamedTuple):
    """Rows in runs of so many: by column what a run has (or, alone, what all have), and what each row has.

    What is in neither is None. Instants are milliseconds, or all of a column are datetimes; numbers may be packed.
    """

    counts: Sequence[int]
    of_runs: Mapping[str, object]
    of_rows: Mapping[str, Sequence[object]] = {}


def parts_of(notes: Notes) -> tuple[list[Part], Active]:
    """All rows, and whom they are about."""
    active: Active = set()
    parts = [_single(each, active) for each in notes.published if isinstance(each, list)]
    several = [each for each in notes.published if not isinstance(each, list)]
    parts += [_several(several, active)] if several else []
    parts += [_delivered(notes.delivered, active)] if notes.delivered else []
    parts += [_settled(notes.settled, active)] if notes.settled else []
    parts += [_others(notes.others, active)] if notes.others else []
    return parts, active


def _single(notes: Singles, active: Active) -> Part:
    at, topic, producer, ids, sizes, queue, offset, stored_at = (notes[n::_OF_SINGLE] for n in range(_OF_SINGLE))
    active.update((each, None) for each in set(topic))
    of_runs: dict[str, object] = {"kind": Kind.PUBLISHED.value, "count": 1}
    of_rows = {"at": at, "queue": queue, "offset": offset, "id": ids, "stored_at": stored_at, "bytes": sizes}
    for name, column in (("topic", topic), ("producer", producer)):
        if column.count(column[0]) == len(column):
            of_runs[name] = column[0]
        else:
            of_rows[name] = column
    return Part([len(at)], of_runs, of_rows)


def _several(notes: Sequence[Several], active: Active) -> Part:
    at, topic, producer, ids, sizes, queue, offset, stored_at = zip(*notes, strict=True)
    active.update((each, None) for each in set(topic))
    of_runs: dict[str, object] = {
        "at": at,
        "kind": Kind.PUBLISHED.value,
        "topic": topic,
        "count": 1,
        "producer": producer,
    }
    counts = [len(some) // PACKED for some in sizes]
    numbers = {"bytes": b"".join(sizes), "offset": b"".join(offset)}
    of_rows: dict[str, Sequence[object]] = {"id": Joined(ids), **numbers}
    # What is published together is mostly stored in one instant, and on a broker without keys in one queue.
    columns: tuple[tuple[str, Sequence[tuple[object, ...]]], ...] = (("queue", queue), ("stored_at", stored_at))
    for name, column in columns:
        if all(len(some) == 1 for some in column):
            of_runs[name] = [some[0] for some in column]
        else:
            repeated = (some * (count // len(some)) for some, count in zip(column, counts, strict=True))
            of_rows[name] = list(chain.from_iterable(repeated))
    return Part(counts, of_runs, of_rows)


def packed(numbers: Sequence[int]) -> bytes:
    """Numbers as they lie in a column; in a third of the time that an array takes."""
    return struct.pack(f"{len(numbers)}q", *numbers)


def _delivered(notes: Sequence[Delivered], active: Active) -> Part:
    at, groups, client, runs = zip(*notes, strict=True)
    queue, delivery, offsets, stored_ms, sizes = zip(*runs, strict=True)
    topic, names = [group.topic for group in groups], [group.name for group in groups]
    active.update(zip(topic, names, strict=True))
    of_runs = {
        "at": at,
        "kind": Kind.DELIVERED.value,
        "topic": topic,
        "queue": queue,
        "count": 1,
        "group": names,
        "client": [name or None for name in client],
        "delivery": delivery,
    }
    of_rows = {
        "offset": list(chain.from_iterable(offsets)),
        "stored_at": list(chain.from_iterable(stored_ms)),
        "bytes": list(chain.from_iterable(sizes)),
    }
    return Part([len(some) for some in offsets], of_runs, of_rows)


_OF_SETTLED = ("at", "kind", "topic", "queue", "group", "client", "granted_at", "outcome", "reason")


def _settled(notes: Sequence[Settlements], active: Active) -> Part:
    """Done, with the times that the receipts carry; or refused. What was done before is no news.

    Neighbours of one grant that are settled alike are one run.
    """
    runs: list[tuple[object, ...]] = []
    counts: list[int] = []
    offsets: list[int | None] = []
    stored: list[int | None] = []
    for at, group, client, settlements, outcomes in notes:
        topic, name = group.topic, group.name
        active.add((topic, name))
        last: tuple[str, Verb, SettlementOutcome] | None = None
        for (verb, lease, through, _, reason, _, receipt), done in zip(settlements, outcomes, strict=True):
            outcome, who = done[0], client or lease.client or None
            token, _, rest = receipt.partition(".")
            if outcome not in _NEW:
                last = None
                if outcome is not SettlementOutcome.DUPLICATE:
                    runs.append((at, Kind.REFUSED.value, topic, None, name, who, None, outcome.value, None))
                    counts.append(1)
                    offsets.append(None)
                    stored.append(None)
                continue
            count = (lease.next if through is None else through + 1) - lease.start
            offsets += range(lease.start, lease.start + count)
            stored += (stored_at(rest),) if rest else stored_at_each(token, lease.next - lease.start)[:count]
            alike = (token, verb, outcome)
            if alike == last:
                counts[-1] += count
                continue
            last = alike
            kind, how = _SETTLED[verb], _NEW[outcome]
            runs.append((at, kind, topic, lease.queue, name, who, granted_at(token), how, reason))
            counts.append(count)
    of_runs: dict[str, object] = dict(zip(_OF_SETTLED, zip(*runs, strict=True), strict=bool(runs)))
    return Part(counts, {**of_runs, "count": 1}, {"offset": offsets, "stored_at": stored})


def _others(notes: Sequence[tuple[int, Mapping[str, object]]], active: Active) -> Part:
    columns: dict[str, list[object]] = {name: [] for name in _NAMES}
    for number, given in notes:
        active.add((str(given["topic"]), given.get("group")))  # type: ignore[arg-type]  # a name
        for name, column in columns.items():
            value = given.get(name)
            column.extend(value if type(value) is list else [value] * number)
    return Part([1] * len(columns["at"]), columns)


def instants(values: Iterable[datetime]) -> list[int]:
    """In milliseconds; the messages of one append share one object."""
    found: list[int] = []
    last, ms = None, 0
    for value in values:
        if value is not last:
            last, ms = value, round(value.timestamp() * 1000)
        found.append(ms)
    return found
