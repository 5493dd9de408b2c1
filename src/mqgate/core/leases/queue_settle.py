"""Settlements of queue and broadcast mode: ack, nack, extend, pull reports and dead letters."""

import random
from collections.abc import Sequence
from datetime import timedelta

from mqgate.core.entries import Group, OnPoison
from mqgate.core.errors import InvalidValue
from mqgate.core.lease import (
    MAX_HOLD,
    ExhaustedMessage,
    Lease,
    PullReport,
    Settlement,
    SettlementOutcome,
    SettlementResult,
    Verb,
    all_serves_returned,
    mark_serve_returned,
)
from mqgate.core.leases.outcomes import LeaseStatus, outcome_of
from mqgate.core.leases.queue_state import EXHAUSTED, NOT_EXHAUSTED, QueueLease, QueueScope
from mqgate.core.message import instant

__all__ = [
    "EXPIRED_REASON",
    "exhaust",
    "hold_limit_exceeded",
    "lease_of",
    "report_pull",
    "settle",
    "settle_dead",
    "status_of",
    "unloaded",
]

_DICE = random.Random()  # noqa: S311 - jitter, not secrets
_MS = timedelta(milliseconds=1)
_MAX_HOLD_MS = MAX_HOLD // _MS
EXPIRED_REASON = "the lease ended without an answer"


def lease_of(scope: QueueScope, queue: QueueLease) -> Lease:
    """Return the newest lease of a queue."""
    return Lease(
        scope.group, scope.client, queue.name, queue.committed, queue.batch_next, queue.epoch, scope.incarnation
    )


def unloaded(scope: QueueScope, leases: Sequence[Lease]) -> list[tuple[str, int]]:
    """Return the queues and old epochs of leases whose spent receipts must be loaded before they can be settled."""
    found = []
    for lease in leases:
        queue = scope.queues.get(lease.queue)
        if queue is None or lease.incarnation != scope.incarnation:
            continue
        if queue.revoked_epoch < lease.epoch < queue.epoch and (lease.queue, lease.epoch) not in scope.spent:
            found.append((lease.queue, lease.epoch))
    return found


def status_of(scope: QueueScope, lease: Lease, now_ms: int) -> LeaseStatus:
    """Return the status of a lease."""
    queue = scope.queues.get(lease.queue)
    if queue is None or scope.incarnation != lease.incarnation:
        return LeaseStatus.UNKNOWN
    spent = scope.spent.get((lease.queue, lease.epoch))
    if spent is not None:
        return LeaseStatus.ACKED if spent is Verb.ACK else LeaseStatus.NACKED
    if lease.epoch <= queue.revoked_epoch:
        return LeaseStatus.UNKNOWN
    if lease.epoch != queue.epoch:
        return LeaseStatus.DELETED if lease.start < queue.head_min else LeaseStatus.SUPERSEDED
    if lease.start != queue.committed:
        # Retention moved the committed offset.
        return LeaseStatus.DELETED
    return LeaseStatus.CURRENT if now_ms < queue.leased_until else LeaseStatus.EXPIRED


def settle(scope: QueueScope, group: Group, settlement: Settlement, now_ms: int) -> SettlementResult:
    """Apply an ack, nack or extend."""
    lease = settlement.lease
    outcome = outcome_of(status_of(scope, lease, now_ms), settlement.verb)
    if not outcome.is_new:
        return SettlementResult(outcome)
    queue = scope.queues[lease.queue]
    if settlement.verb is Verb.EXTEND:
        return _extend(scope, group, queue, settlement, outcome, now_ms)
    scope.spend(lease.queue, lease.epoch, settlement.verb, now_ms)
    if settlement.verb is Verb.ACK:
        _commit(queue, lease.next if settlement.through is None else settlement.through + 1, now_ms)
        scope.change(queue)
        return SettlementResult(outcome)
    return _nack(scope, group, queue, settlement, outcome, now_ms)


def _commit(queue: QueueLease, offset: int, now_ms: int) -> None:
    queue.committed = offset
    queue.release(now_ms)
    queue.forget_attempts()
    queue.exhausted = NOT_EXHAUSTED
    queue.last_consumed_at = now_ms


def _nack(
    scope: QueueScope,
    group: Group,
    queue: QueueLease,
    settlement: Settlement,
    outcome: SettlementOutcome,
    now_ms: int,
) -> SettlementResult:
    is_dead = queue.attempts >= group.max_attempts and group.on_poison is OnPoison.DEAD
    delay = settlement.delay
    if delay is None:
        delay = group.backoff.delay(queue.attempts, _DICE)
    queue.release(now_ms)
    queue.free_at = now_ms if is_dead else now_ms + delay // _MS
    queue.held = int(queue.free_at > now_ms)
    queue.reason = settlement.reason or "nacked"
    scope.change(queue)
    return SettlementResult(outcome, exhausted=exhaust(scope, queue, now_ms) if is_dead else None)


def _extend(
    scope: QueueScope,
    group: Group,
    queue: QueueLease,
    settlement: Settlement,
    outcome: SettlementOutcome,
    now_ms: int,
) -> SettlementResult:
    until = now_ms + (settlement.visibility or group.visibility) // _MS
    if until > queue.granted_at + _MAX_HOLD_MS:
        return hold_limit_exceeded()
    queue.leased_until = until
    queue.held = 1
    queue.free_at = until + group.backoff.delay(queue.attempts, _DICE) // _MS
    scope.change(queue)
    return SettlementResult(outcome, leased_until=instant(until))


def hold_limit_exceeded() -> SettlementResult:
    """Return the result of an extend beyond MAX_HOLD."""
    limit = MAX_HOLD.total_seconds()
    error = InvalidValue("a lease is held for 12 hours in all at most: ack or nack it", field="visibility", limit=limit)
    return SettlementResult(SettlementOutcome.INVALID, error=error)


def exhaust(scope: QueueScope, queue: QueueLease, now_ms: int) -> ExhaustedMessage:
    """Return the exhausted first message of a queue. From here on its receipts are superseded."""
    if queue.exhausted != EXHAUSTED:
        queue.reason = None if queue.serves else queue.reason
        queue.exhausted = EXHAUSTED
        queue.next_epoch()
        queue.attempt = None
        scope.change(queue)
    return ExhaustedMessage(
        lease_of(scope, queue),
        queue.attempts,
        instant(queue.first_at),
        instant(min(queue.leased_until, now_ms)),
        queue.reason or EXPIRED_REASON,
        is_lease_expired=bool(queue.serves),
    )


def report_pull(scope: QueueScope, group: Group, report: PullReport, now_ms: int) -> frozenset[int]:
    """Shorten a lease to what the pull found, or release it. Return the offsets that stay leased."""
    grant, after, _ = report
    lease = grant.lease
    queue = _current(scope, lease)
    if queue is None or (lease.queue, lease.epoch) in scope.spent:
        return frozenset()
    if after == lease.start and grant.serve <= queue.serves:
        queue.returned = mark_serve_returned(queue.returned, grant.serve)
        if all_serves_returned(queue.returned, queue.serves):
            scope.tokens.refund(group.rate_limit, queue.batch_next - after)
            queue.release(now_ms)
            queue.attempts -= 1
            queue.exhausted = NOT_EXHAUSTED
        scope.change(queue)
    elif after > lease.start and queue.batch_next == lease.next and queue.serves == grant.serve:
        scope.tokens.refund(group.rate_limit, lease.next - after)
        queue.batch_next = after
        scope.change(queue)
        return frozenset(range(lease.start, after))
    return frozenset()


def settle_dead(scope: QueueScope, exhausted: ExhaustedMessage, now_ms: int, *, is_expired: bool) -> bool:
    """Move the committed offset past a dead letter."""
    queue = _current(scope, exhausted.lease)
    if queue is None:
        return False
    _commit(queue, queue.committed + 1, now_ms)
    queue.expired += is_expired
    scope.change(queue)
    return True


def _current(scope: QueueScope, lease: Lease) -> QueueLease | None:
    """Return the queue of a lease if nothing newer was granted and the committed offset did not move."""
    queue = scope.queues.get(lease.queue)
    if queue is None or scope.incarnation != lease.incarnation:
        return None
    return queue if (queue.epoch, queue.committed) == (lease.epoch, lease.start) else None
