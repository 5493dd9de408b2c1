"""What the scripts answer, and the facts that it means."""

import struct
from typing import Any, TypeVar

import msgspec

from mqgate.core import lease as facts
from mqgate.core.errors import InvalidValue
from mqgate.core.message import instant

__all__ = ["AcquireReply", "Client", "PositionsReply", "Settlements", "is_usual", "outcomes", "read", "usual"]

_T = TypeVar("_T")
_USUAL = struct.Struct("<6q")
_decoders: dict[Any, Any] = {}


def read(reply: bytes, kind: type[_T]) -> _T:
    """An answer as what it is."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    found: _T = decoder.decode(reply)
    return found


class _Grant(msgspec.Struct, array_like=True):
    queue: str
    start: int
    next: int
    epoch: int
    delivery: int
    granted_at: int
    until_ms: int
    serve: int
    lease_expired: int

    def told(self, group: str, client: str, incarnation: str) -> facts.Grant:
        lease = facts.Lease(group, client, self.queue, self.start, self.next, self.epoch, incarnation)
        times = instant(self.granted_at), instant(self.until_ms)
        return facts.Grant(lease, self.delivery, *times, self.serve, self.lease_expired)


class _ExhaustedMessage(msgspec.Struct, array_like=True):
    client: str
    queue: str
    start: int
    next: int
    epoch: int
    incarnation: str
    deliveries: int
    first_at: int
    last_at: int
    reason: str | bool
    lease_expired: bool

    def told(self, group: str) -> facts.ExhaustedMessage:
        lease = facts.Lease(group, self.client, self.queue, self.start, self.next, self.epoch, self.incarnation)
        times = instant(self.first_at), instant(self.last_at)
        reason = self.reason if isinstance(self.reason, str) else None
        return facts.ExhaustedMessage(lease, self.deliveries, *times, reason, self.lease_expired)


class _SettlementResult(msgspec.Struct, array_like=True):
    outcome: str
    until_ms: int
    exhausted: _ExhaustedMessage | None = None


Settlements = list[str | _SettlementResult]
_PLAIN = {outcome.value: facts.SettlementResult(outcome) for outcome in facts.SettlementOutcome}
_STATES = {state.value: state for state in facts.ReceiveState}


def _settled(answer: str | _SettlementResult, group: str) -> facts.SettlementResult:
    """One settlement's outcome."""
    if isinstance(answer, str):
        return _PLAIN.get(answer) or _too_long()
    return facts.SettlementResult(
        facts.SettlementOutcome(answer.outcome),
        exhausted=None if answer.exhausted is None else answer.exhausted.told(group),
        leased_until=instant(answer.until_ms) if answer.until_ms else None,
    )


def outcomes(answer: Settlements, count: int, group: str) -> list[facts.SettlementResult]:
    """One for each settlement; if all are the same they may be told once."""
    found = [_settled(each, group) for each in answer]
    return found if len(found) == count else found * count


def _too_long() -> facts.SettlementResult:
    error = InvalidValue(
        "a lease is held for 12 hours in all at most: ack or nack it",
        field="visibility",
        limit=facts.MAX_HOLD.total_seconds(),
    )
    return facts.SettlementResult(facts.SettlementOutcome.INVALID, error=error)


class AcquireReply(msgspec.Struct, array_like=True):
    """What a receive was given. What is seldom there comes last, and then together."""

    incarnation: str
    settled: Settlements
    grants: list[_Grant]
    state: str
    next_at: int
    has_more: bool
    rewound: int = 0
    lost: list[tuple[str, int, int]] = []
    exhausted: list[_ExhaustedMessage] = []
    unknown_queues: list[str] = []
    is_span_full: bool = False

    def told(self, group: str, client: str, settlements: int) -> facts.AcquireResult:
        return facts.AcquireResult(
            True,
            outcomes(self.settled, settlements, group),
            [each.told(group, client, self.incarnation) for each in self.grants],
            _STATES[self.state],
            [facts.OffsetRange(*span) for span in self.lost],
            self.rewound,
            [each.told(group) for each in self.exhausted],
            instant(self.next_at) if self.next_at else None,
            self.has_more,
            self.is_span_full,
            self.unknown_queues,
        )


def is_usual(reply: Any) -> bool:
    """Whether it is the answer of queue_usual.lua, and not an array."""
    return isinstance(reply, bytes) and reply[:1] == b"u"


def usual(reply: bytes, request: facts.AcquireRequest) -> facts.AcquireResult:
    """What a usual receive was given: its ack was applied, and there is one batch."""
    start, after, epoch, now, next_at, has_more = _USUAL.unpack_from(reply, 1)
    queue = reply[1 + _USUAL.size :].decode()
    group, client, incarnation = request.group.name, request.client, request.settlements[0].lease.incarnation
    lease = facts.Lease(group, client, queue, start, after, epoch, incarnation)
    granted_at = instant(now)
    return facts.AcquireResult(
        True,
        [_PLAIN["applied"]] * len(request.settlements),
        [facts.Grant(lease, 1, granted_at, granted_at + request.visibility)],
        next_at=instant(next_at) if next_at else None,
        has_more=bool(has_more),
    )


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


class PositionsReply(msgspec.Struct):
    positions: list[_Position]
    exhausted: list[_ExhaustedMessage]

    def told(self, group: str) -> tuple[list[facts.Position], list[facts.ExhaustedMessage]]:
        return [each.told() for each in self.positions], [each.told(group) for each in self.exhausted]


class Client(msgspec.Struct, array_like=True):
    name: str
    address: str
    first_seen: int
    last_seen: int
    holds: list[str]

    def told(self) -> facts.ClientInfo:
        return facts.ClientInfo(
            self.name, self.address, instant(self.first_seen), instant(self.last_seen), sorted(self.holds)
        )
