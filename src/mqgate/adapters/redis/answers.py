"""What the scripts answer, and the facts that it means."""

from typing import Any, TypeVar

import msgspec

from mqgate.core import lease as facts
from mqgate.core.errors import InvalidValue
from mqgate.core.message import instant

__all__ = ["Acquired", "Client", "Move", "Positions", "Settlements", "read", "settled"]

_T = TypeVar("_T")
_decoders: dict[Any, Any] = {}


def read(reply: bytes, kind: type[_T]) -> _T:
    """An answer as what it is."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    found: _T = decoder.decode(reply)
    return found


class _Lease(msgspec.Struct):
    client: str
    queue: str
    start: int
    next: int
    epoch: int
    incarnation: str

    def told(self, group: str) -> facts.Lease:
        return facts.Lease(group, self.client, self.queue, self.start, self.next, self.epoch, self.incarnation)


class _Grant(msgspec.Struct):
    lease: _Lease
    delivery: int
    granted_at: int
    until_ms: int
    serve: int
    lapsed: int = 0

    def told(self, group: str) -> facts.Grant:
        times = instant(self.granted_at), instant(self.until_ms)
        return facts.Grant(self.lease.told(group), self.delivery, *times, self.serve, self.lapsed)


class _Doomed(msgspec.Struct):
    lease: _Lease
    deliveries: int
    first_at: int
    last_at: int
    reason: str | None = None
    lapsed: bool = False

    def told(self, group: str) -> facts.Doomed:
        times = instant(self.first_at), instant(self.last_at)
        return facts.Doomed(self.lease.told(group), self.deliveries, *times, self.reason, self.lapsed)


class _Settled(msgspec.Struct):
    outcome: str
    doomed: _Doomed | None = None
    until_ms: int | None = None


Settlements = list[str | _Settled]
_PLAIN = {outcome.value: facts.Settled(outcome) for outcome in facts.Outcome}


def settled(answer: str | _Settled, group: str) -> facts.Settled:
    """One settlement's outcome."""
    if answer == "too_long":
        error = InvalidValue(
            "a lease is held for 12 hours in all at most: ack or nack it",
            field="visibility",
            limit=facts.LONGEST_HOLD.total_seconds(),
        )
        return facts.Settled(facts.Outcome.INVALID, error=error)
    if isinstance(answer, str):
        return _PLAIN[answer]
    return facts.Settled(
        facts.Outcome(answer.outcome),
        doomed=None if answer.doomed is None else answer.doomed.told(group),
        leased_until=None if answer.until_ms is None else instant(answer.until_ms),
    )


class Acquired(msgspec.Struct):
    """What a receive was given."""

    known: bool
    incarnation: str = ""
    mismatch: bool = False
    settled: Settlements = []
    grants: list[_Grant] = []
    doomed: list[_Doomed] = []
    strangers: list[str] = []
    state: str = "ok"
    lost: list[tuple[str, int, int]] = []
    rewound: int = 0
    next_at: int | None = None
    has_more: bool = False
    needs_settling: bool = False

    def told(self, group: str) -> facts.Acquired:
        return facts.Acquired(
            is_known=True,
            settled=[settled(each, group) for each in self.settled],
            grants=[each.told(group) for each in self.grants],
            state=facts.State(self.state),
            lost=[facts.Span(*span) for span in self.lost],
            rewound=self.rewound,
            doomed=[each.told(group) for each in self.doomed],
            next_at=None if self.next_at is None else instant(self.next_at),
            has_more=self.has_more,
            needs_settling=self.needs_settling,
            strangers=self.strangers,
        )


class Move(msgspec.Struct):
    queue: str
    old: int
    new: int

    def told(self) -> facts.Moved:
        return facts.Moved(self.queue, self.old, self.new)


class _Position(msgspec.Struct):
    queue: str
    min: int
    max: int
    committed: int
    cursor: int
    ready: int
    leased: int
    waiting: int
    last_consumed_at: int
    attempts: int
    is_blocked: bool
    expired: int
    epoch: int
    locked_until: int | None = None
    last_client: str | None = None

    def told(self) -> facts.Position:
        return facts.Position(
            queue=self.queue,
            min=self.min,
            max=self.max,
            committed=self.committed,
            cursor=self.cursor,
            ready=self.ready,
            leased=self.leased,
            waiting=self.waiting,
            locked_until=None if self.locked_until is None else instant(self.locked_until),
            last_client=self.last_client,
            last_consumed_at=instant(self.last_consumed_at) if self.last_consumed_at else None,
            attempts=self.attempts,
            is_blocked=self.is_blocked,
            expired=self.expired,
            epoch=self.epoch,
        )


class Positions(msgspec.Struct):
    positions: list[_Position]
    doomed: list[_Doomed]

    def told(self, group: str) -> tuple[list[facts.Position], list[facts.Doomed]]:
        return [each.told() for each in self.positions], [each.told(group) for each in self.doomed]


class Client(msgspec.Struct):
    name: str
    address: str
    first_seen: int
    last_seen: int
    holds: list[str]

    def told(self) -> facts.Client:
        return facts.Client(
            self.name, self.address, instant(self.first_seen), instant(self.last_seen), sorted(self.holds)
        )
