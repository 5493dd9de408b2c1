"""Turns recorded events into columns of `events/1`, in the thread that encodes them.

Events of the hot paths are recorded in separate lists and converted list by list. Building rows one by one would exceed
the time that recording may add to a publish.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from mqgate.core.acked_range import AckedRange
from mqgate.core.entries import Group
from mqgate.core.events import EVENTS, Kind
from mqgate.core.lease import Settlement, SettlementOutcome, SettlementResult, Verb
from mqgate.core.receipt_times import granted_at, stored_at, stored_at_each

__all__ = [
    "PACKED_BYTES",
    "SEPARATOR",
    "ActiveNames",
    "JoinedTexts",
    "Part",
    "PendingEvents",
    "Run",
    "build_parts",
    "pack",
    "to_milliseconds",
]

# Topics and groups that have new events. Group None: the event concerns the topic.
ActiveNames = set[tuple[str, str | None]]
_COLUMNS = tuple(name for name, _ in EVENTS.columns)
_KIND_OF_VERB = {Verb.ACK: Kind.ACKED.value, Verb.NACK: Kind.NACKED.value, Verb.EXTEND: Kind.EXTENDED.value}
# The outcomes that changed the lease state. The values are cached because `StrEnum.value` is slow.
_CHANGING_OUTCOMES = {outcome: outcome.value for outcome in SettlementOutcome if outcome.is_new}


class Run(NamedTuple):
    """Delivered messages of one grant, with packed numbers."""

    queue: str
    delivery: int
    offsets: bytes
    stored_ms: bytes
    sizes: bytes


# Publishes of one message each, flat: time, topic, producer or None, id, size, queue, offset, store time, time, ...
# One list instead of many tuples leaves the garbage collector fewer objects to visit until they are written.
SinglePublishes = list[Any]
_FIELDS_PER_PUBLISH = 8
# A publish of several messages: the same fields, with columns for the last five. Ids are one joined text, numbers are
# packed. A single queue or store time applies to all messages.
BatchPublish = tuple[int, str, str | None, str, bytes, tuple[str, ...], bytes, tuple[datetime, ...]]
# Cannot occur in a message id.
SEPARATOR = "\x01"
PACKED_BYTES = 8
Delivered = tuple[int, Group, str, Run]
Settlements = tuple[int, Group, str, Sequence[Settlement], Sequence[SettlementResult]]


class PendingEvents(NamedTuple):
    """Recorded events by kind, in order. The records of the first three lists begin with the time."""

    published: list[SinglePublishes | BatchPublish]
    delivered: list[Delivered]
    settled: list[Settlements]
    # Row count and columns of all other events. A list has one value per row; other values apply to all rows.
    others: list[tuple[int, Mapping[str, object]]]


class JoinedTexts(tuple[str, ...]):
    """A column of texts. Each element contains several of them, joined by `SEPARATOR`."""

    __slots__ = ()


class Part(NamedTuple):
    """Rows in runs of `counts` rows. `run_values` has one value per run (or one for all), `row_values` one per row.

    Columns in neither are null. Instants are milliseconds, or all datetimes within a column. Numbers may be packed.
    """

    counts: Sequence[int]
    run_values: Mapping[str, object]
    row_values: Mapping[str, Sequence[object]] = {}


def build_parts(events: PendingEvents) -> tuple[list[Part], ActiveNames]:
    """Return all rows, and the topics and groups that they concern."""
    active: ActiveNames = set()
    parts = [_single_publish_part(item, active) for item in events.published if isinstance(item, list)]
    batches = [item for item in events.published if not isinstance(item, list)]
    parts += [_batch_publish_part(batches, active)] if batches else []
    parts += [_delivered_part(events.delivered, active)] if events.delivered else []
    parts += [_settled_part(events.settled, active)] if events.settled else []
    parts += [_others_part(events.others, active)] if events.others else []
    return parts, active


def _single_publish_part(records: SinglePublishes, active: ActiveNames) -> Part:
    at, topic, producer, ids, sizes, queue, offset, stored_at = (
        records[n::_FIELDS_PER_PUBLISH] for n in range(_FIELDS_PER_PUBLISH)
    )
    active.update((name, None) for name in set(topic))
    run_values: dict[str, object] = {"kind": Kind.PUBLISHED.value, "count": 1}
    row_values = {"at": at, "queue": queue, "offset": offset, "id": ids, "stored_at": stored_at, "bytes": sizes}
    for name, column in (("topic", topic), ("producer", producer)):
        if column.count(column[0]) == len(column):
            run_values[name] = column[0]
        else:
            row_values[name] = column
    return Part([len(at)], run_values, row_values)


def _batch_publish_part(records: Sequence[BatchPublish], active: ActiveNames) -> Part:
    at, topic, producer, ids, sizes, queue, offset, stored_at = zip(*records, strict=True)
    active.update((name, None) for name in set(topic))
    run_values: dict[str, object] = {
        "at": at,
        "kind": Kind.PUBLISHED.value,
        "topic": topic,
        "count": 1,
        "producer": producer,
    }
    counts = [len(numbers) // PACKED_BYTES for numbers in sizes]
    packed_columns = {"bytes": b"".join(sizes), "offset": b"".join(offset)}
    row_values: dict[str, Sequence[object]] = {"id": JoinedTexts(ids), **packed_columns}
    # Messages of one publish usually have one store time and, on a broker without keys, one queue.
    columns: tuple[tuple[str, Sequence[tuple[object, ...]]], ...] = (("queue", queue), ("stored_at", stored_at))
    for name, column in columns:
        if all(len(values) == 1 for values in column):
            run_values[name] = [values[0] for values in column]
        else:
            repeated = (values * (count // len(values)) for values, count in zip(column, counts, strict=True))
            row_values[name] = list(chain.from_iterable(repeated))
    return Part(counts, run_values, row_values)


def pack(numbers: Sequence[int]) -> bytes:
    """Return numbers in the binary form of an int64 column. This takes a third of the time of building an array."""
    return struct.pack(f"{len(numbers)}q", *numbers)


def _delivered_part(records: Sequence[Delivered], active: ActiveNames) -> Part:
    at, groups, client, runs = zip(*records, strict=True)
    queue, delivery, offsets, stored_ms, sizes = zip(*runs, strict=True)
    topic, names = [group.topic for group in groups], [group.name for group in groups]
    active.update(zip(topic, names, strict=True))
    run_values = {
        "at": at,
        "kind": Kind.DELIVERED.value,
        "topic": topic,
        "queue": queue,
        "count": 1,
        "group": names,
        "client": [name or None for name in client],
        "delivery": delivery,
    }
    row_values = {
        "offset": b"".join(offsets),
        "stored_at": b"".join(stored_ms),
        "bytes": b"".join(sizes),
    }
    return Part([len(numbers) // PACKED_BYTES for numbers in offsets], run_values, row_values)


_SETTLED_COLUMNS = ("at", "kind", "topic", "queue", "group", "client", "granted_at", "outcome", "reason")


def _settled_part(records: Sequence[Settlements], active: ActiveNames) -> Part:
    """Return applied settlements, with the times of their receipts, and refused ones. Duplicates are not events.

    Consecutive settlements of one grant with the same verb and outcome form one run.
    """
    runs: list[tuple[object, ...]] = []
    counts: list[int] = []
    offsets: list[int | None] = []
    stored: list[int | None] = []
    for at, group, client, settlements, outcomes in records:
        topic, name = group.topic, group.name
        active.add((topic, name))
        if isinstance(settlements, AckedRange) and outcomes[0][0] in _CHANGING_OUTCOMES and _are_equal(outcomes):
            # The common case of message mode. All receipts have the same token.
            (_, _, queue, start, after, _, _), receipts = settlements.lease, settlements.receipts
            token, outcome_text = receipts[0].partition(".")[0], _CHANGING_OUTCOMES[outcomes[0][0]]
            run = at, Kind.ACKED.value, topic, queue, name, client or None, granted_at(token), outcome_text, None
            runs.append(run)
            counts.append(after - start)
            offsets += range(start, after)
            stored += [stored_at(receipt.partition(".")[2]) for receipt in receipts]
            continue
        last: tuple[str, Verb, SettlementOutcome] | None = None
        for (verb, lease, through, _, reason, _, receipt), result in zip(settlements, outcomes, strict=True):
            outcome, name_of_client = result[0], client or lease.client or None
            token, _, rest = receipt.partition(".")
            if outcome not in _CHANGING_OUTCOMES:
                last = None
                if outcome is not SettlementOutcome.DUPLICATE:
                    runs.append((at, Kind.REFUSED.value, topic, None, name, name_of_client, None, outcome.value, None))
                    counts.append(1)
                    offsets.append(None)
                    stored.append(None)
                continue
            count = (lease.next if through is None else through + 1) - lease.start
            offsets += range(lease.start, lease.start + count)
            stored += (stored_at(rest),) if rest else stored_at_each(token, lease.next - lease.start)[:count]
            run_key = (token, verb, outcome)
            if run_key == last:
                counts[-1] += count
                continue
            last = run_key
            kind, outcome_text = _KIND_OF_VERB[verb], _CHANGING_OUTCOMES[outcome]
            runs.append((at, kind, topic, lease.queue, name, name_of_client, granted_at(token), outcome_text, reason))
            counts.append(count)
    run_values: dict[str, object] = dict(zip(_SETTLED_COLUMNS, zip(*runs, strict=True), strict=bool(runs)))
    return Part(counts, {**run_values, "count": 1}, {"offset": offsets, "stored_at": stored})


def _are_equal(outcomes: Sequence[SettlementResult]) -> bool:
    return outcomes.count(outcomes[0]) == len(outcomes)


def _others_part(records: Sequence[tuple[int, Mapping[str, object]]], active: ActiveNames) -> Part:
    columns: dict[str, list[object]] = {name: [] for name in _COLUMNS}
    for number, given in records:
        active.add((str(given["topic"]), given.get("group")))  # type: ignore[arg-type]  # a name
        for name, column in columns.items():
            value = given.get(name)
            column.extend(value if type(value) is list else [value] * number)
    return Part([1] * len(columns["at"]), columns)


def to_milliseconds(values: Iterable[datetime]) -> list[int]:
    """Return instants as milliseconds. The messages of one append share one object, which is converted once."""
    result: list[int] = []
    last, ms = None, 0
    for value in values:
        if value is not last:
            last, ms = value, round(value.timestamp() * 1000)
        result.append(ms)
    return result
