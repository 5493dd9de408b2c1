"""From what was noted to rows of `events/1`; away from the hot paths, in the thread that encodes them.

Each function takes what a call noted, and the rows to add to.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from mqgate.core.entries import Group
from mqgate.core.errors import MqgateError
from mqgate.core.events import EVENTS, Kind
from mqgate.core.lease import Outcome, Settled, Settlement, Verb
from mqgate.core.message import Stored
from mqgate.core.stamps import times_of

__all__ = ["Active", "Rows", "Spot", "delivered", "instants", "published", "settled"]

# Topics and groups to which something happened; without a group: to the topic.
Active = set[tuple[str, str | None]]
# Queue, offset, when it was stored, its size, the number of the delivery.
Spot = tuple[str, int, datetime, int, int]
_NAMES = tuple(name for name, _ in EVENTS.columns)
_SETTLED = {Verb.ACK: Kind.ACKED.value, Verb.NACK: Kind.NACKED.value, Verb.EXTEND: Kind.EXTENDED.value}


class Rows:
    """Rows as columns, in the order of the table; and whom they are about."""

    def __init__(self) -> None:
        self.columns: list[list[object]] = [[] for _ in _NAMES]
        self.active: Active = set()

    def __len__(self) -> int:
        return len(self.columns[0])

    def add(self, number: int, /, **given: Any) -> None:
        """So many rows. A list says what each of them has, anything else is the same in all; the rest is None."""
        self.active.add((given["topic"], given.get("group")))
        given.setdefault("count", 1)
        for name, column in zip(_NAMES, self.columns, strict=True):
            value = given.get(name)
            column.extend(value if type(value) is list else [value] * number)


def published(
    at: int,
    topic: str,
    producer: str,
    ids: Sequence[str],
    sizes: Sequence[int],
    outcomes: Sequence[Stored | MqgateError],
    rows: Rows,
) -> None:
    """What was stored; what was not is told by whoever answers it."""
    stored = [each for each in outcomes if isinstance(each, Stored)]
    if len(stored) < len(outcomes):
        done = [place for place, each in enumerate(outcomes) if isinstance(each, Stored)]
        ids, sizes = [ids[place] for place in done], [sizes[place] for place in done]
    rows.add(
        len(stored),
        at=at,
        kind=Kind.PUBLISHED.value,
        topic=topic,
        queue=[each.queue for each in stored],
        offset=[each.offset for each in stored],
        producer=producer or None,
        id=ids,
        stored_at=instants(each.stored_at for each in stored),
        bytes=sizes,
    )


def delivered(at: int, group: Group, client: str, spots: Sequence[Spot], rows: Rows) -> None:
    queue, offset, stored_at, size, delivery = map(list, zip(*spots, strict=True))
    rows.add(
        len(spots),
        at=at,
        kind=Kind.DELIVERED.value,
        topic=group.topic,
        queue=queue,
        offset=offset,
        group=group.name,
        client=client or None,
        stored_at=instants(stored_at),
        delivery=delivery,
        bytes=size,
    )


def settled(
    at: int, group: Group, client: str, settlements: Sequence[Settlement], outcomes: Sequence[Settled], rows: Rows
) -> None:
    """Done, with the times that the receipts carry; or refused. What was done before is no news."""
    for (verb, reason, owner, outcome), run in groupby(zip(settlements, outcomes, strict=True), _alike):
        some = [settlement for settlement, _ in run]
        given = {"at": at, "topic": group.topic, "group": group.name, "client": client or owner or None}
        given["outcome"] = outcome.value
        if outcome.is_new:
            spots = [spot for each in some for spot in _spots(each)]
            queue, offset, stored_at, granted_at = map(list, zip(*spots, strict=True))
            times = {"stored_at": stored_at, "granted_at": granted_at}
            rows.add(len(spots), kind=_SETTLED[verb], queue=queue, offset=offset, reason=reason, **times, **given)
        elif outcome is not Outcome.DUPLICATE:
            rows.add(len(some), kind=Kind.REFUSED.value, **given)


def _alike(pair: tuple[Settlement, Settled]) -> tuple[Verb, str | None, str, Outcome]:
    settlement, done = pair
    return settlement.verb, settlement.reason, settlement.lease.client, done.outcome


def _spots(settlement: Settlement) -> Iterator[tuple[str, int, int | None, int | None]]:
    """Each message of it: where it lies, when it was stored, when it was leased."""
    lease = settlement.lease
    granted_at, stored_at = times_of(settlement.receipt, lease.next - lease.start)
    after = lease.next if settlement.through is None else settlement.through + 1
    for offset, at in zip(range(lease.start, after), stored_at, strict=False):
        yield lease.queue, offset, at, granted_at


def instants(values: Iterable[datetime]) -> list[int]:
    """In milliseconds; the messages of one append share one object."""
    found: list[int] = []
    last, ms = None, 0
    for value in values:
        if value is not last:
            last, ms = value, round(value.timestamp() * 1000)
        found.append(ms)
    return found
