"""Replies of the scripts, decoded and converted to domain values."""

import struct
from typing import Any, TypeVar

import msgspec

from mqgate.core import lease as domain
from mqgate.core.errors import InvalidValue
from mqgate.core.message import instant

__all__ = [
    "AcquireReply",
    "ClientReply",
    "PositionsReply",
    "SettlementReplies",
    "decode",
    "is_fast_path",
    "read_fast_path",
    "settlement_results",
]

_T = TypeVar("_T")
_FAST_PATH = struct.Struct("<6q")
_decoders: dict[Any, Any] = {}


def decode(reply: bytes, kind: type[_T]) -> _T:
    """Decode a MessagePack reply."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    decoded: _T = decoder.decode(reply)
    return decoded


class _GrantReply(msgspec.Struct, array_like=True):
    queue: str
    start: int
    next: int
    epoch: int
    delivery: int
    granted_at: int
    until_ms: int
    serve: int
    lease_expired: int

    def to_domain(self, group: str, client: str, incarnation: str) -> domain.Grant:
        lease = domain.Lease(group, client, self.queue, self.start, self.next, self.epoch, incarnation)
        times = instant(self.granted_at), instant(self.until_ms)
        return domain.Grant(lease, self.delivery, *times, self.serve, self.lease_expired)


class _ExhaustedReply(msgspec.Struct, array_like=True):
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

    def to_domain(self, group: str) -> domain.ExhaustedMessage:
        lease = domain.Lease(group, self.client, self.queue, self.start, self.next, self.epoch, self.incarnation)
        times = instant(self.first_at), instant(self.last_at)
        reason = self.reason if isinstance(self.reason, str) else None
        return domain.ExhaustedMessage(lease, self.deliveries, *times, reason, self.lease_expired)


class _SettlementReply(msgspec.Struct, array_like=True):
    outcome: str
    until_ms: int
    exhausted: _ExhaustedReply | None = None


SettlementReplies = list[str | _SettlementReply]
_WITHOUT_DETAILS = {outcome.value: domain.SettlementResult(outcome) for outcome in domain.SettlementOutcome}
_STATES = {state.value: state for state in domain.ReceiveState}


def _settlement_result(reply: str | _SettlementReply, group: str) -> domain.SettlementResult:
    if isinstance(reply, str):
        return _WITHOUT_DETAILS.get(reply) or _too_long()
    return domain.SettlementResult(
        domain.SettlementOutcome(reply.outcome),
        exhausted=None if reply.exhausted is None else reply.exhausted.to_domain(group),
        leased_until=instant(reply.until_ms) if reply.until_ms else None,
    )


def settlement_results(replies: SettlementReplies, count: int, group: str) -> list[domain.SettlementResult]:
    """Return one result per settlement. A script may return one reply for all if they are equal."""
    results = [_settlement_result(reply, group) for reply in replies]
    return results if len(results) == count else results * count


def _too_long() -> domain.SettlementResult:
    error = InvalidValue(
        "a lease can be held for at most 12 hours in total: ack or nack it",
        field="visibility",
        limit=domain.MAX_HOLD.total_seconds(),
    )
    return domain.SettlementResult(domain.SettlementOutcome.INVALID, error=error)


class AcquireReply(msgspec.Struct, array_like=True):
    """Reply to acquire. The members with a default are usually empty; a script then leaves out all of them."""

    incarnation: str
    settled: SettlementReplies
    grants: list[_GrantReply]
    state: str
    next_at: int
    has_more: bool
    rewound: int = 0
    lost: list[tuple[str, int, int]] = []
    exhausted: list[_ExhaustedReply] = []
    unknown_queues: list[str] = []
    is_span_full: bool = False

    def to_domain(self, group: str, client: str, settlements: int) -> domain.AcquireResult:
        return domain.AcquireResult(
            True,
            settlement_results(self.settled, settlements, group),
            [grant.to_domain(group, client, self.incarnation) for grant in self.grants],
            _STATES[self.state],
            [domain.OffsetRange(*lost) for lost in self.lost],
            self.rewound,
            [message.to_domain(group) for message in self.exhausted],
            instant(self.next_at) if self.next_at else None,
            self.has_more,
            self.is_span_full,
            self.unknown_queues,
        )


def is_fast_path(reply: Any) -> bool:
    """Return whether a fast path of acquire sent the reply (see queue_fast_path.lua)."""
    return isinstance(reply, bytes) and reply[:1] == b"u"


def read_fast_path(reply: bytes, request: domain.AcquireRequest) -> domain.AcquireResult:
    """Return the result of a fast path: the carried acks were applied, and one batch was granted."""
    start, after, epoch, now, next_at, has_more = _FAST_PATH.unpack_from(reply, 1)
    queue = reply[1 + _FAST_PATH.size :].decode()
    group, client, incarnation = request.group.name, request.client, request.settlements[0].lease.incarnation
    lease = domain.Lease(group, client, queue, start, after, epoch, incarnation)
    granted_at = instant(now)
    return domain.AcquireResult(
        True,
        [_WITHOUT_DETAILS["applied"]] * len(request.settlements),
        [domain.Grant(lease, 1, granted_at, granted_at + request.visibility)],
        next_at=instant(next_at) if next_at else None,
        has_more=bool(has_more),
        are_bounds_applied=not request.bounds,
    )


class _PositionReply(msgspec.Struct):
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

    def to_domain(self) -> domain.Position:
        return domain.Position(
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
    """Reply to positions."""

    positions: list[_PositionReply]
    exhausted: list[_ExhaustedReply]

    def to_domain(self, group: str) -> tuple[list[domain.Position], list[domain.ExhaustedMessage]]:
        return [position.to_domain() for position in self.positions], [
            message.to_domain(group) for message in self.exhausted
        ]


class ClientReply(msgspec.Struct, array_like=True):
    """One client of a group."""

    name: str
    address: str
    first_seen: int
    last_seen: int
    holds: list[str]

    def to_domain(self) -> domain.ClientInfo:
        return domain.ClientInfo(
            self.name, self.address, instant(self.first_seen), instant(self.last_seen), sorted(self.holds)
        )
