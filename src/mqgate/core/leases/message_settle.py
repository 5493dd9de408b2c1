"""Settlements of message mode: ack, nack, extend, lease expiry and dead letters."""

import random
from collections.abc import Sequence
from datetime import timedelta

from mqgate.core.acked_range import AckedRange
from mqgate.core.entries import Group
from mqgate.core.lease import (
    MAX_HOLD,
    ExhaustedMessage,
    Lease,
    Settlement,
    SettlementOutcome,
    SettlementResult,
    Verb,
)
from mqgate.core.leases.message_state import FailedMessage, MessageGrant, MessageScope, bits_of
from mqgate.core.leases.outcomes import LeaseStatus, outcome_of
from mqgate.core.leases.queue_settle import EXPIRED_REASON, hold_limit_exceeded
from mqgate.core.message import instant

__all__ = ["end_leases", "fail", "finish", "settle_all", "settle_dead", "status_of", "unloaded"]

_DICE = random.Random()  # noqa: S311 - jitter, not secrets
_MS = timedelta(milliseconds=1)
_MAX_HOLD_MS = MAX_HOLD // _MS
_APPLIED = SettlementResult(SettlementOutcome.APPLIED)


def unloaded(scope: MessageScope, leases: Sequence[Lease]) -> list[int]:
    """Return the epochs of older grants that must be loaded before these leases can be settled."""
    return list(
        {
            lease.epoch
            for lease in leases
            if lease.epoch not in scope.grants
            and 0 < lease.epoch <= scope.epoch
            and lease.incarnation == scope.incarnation
        }
    )


def settle_all(
    scope: MessageScope, group: Group, settlements: Sequence[Settlement], now_ms: int
) -> list[SettlementResult]:
    """Apply settlements in order."""
    if isinstance(settlements, AckedRange) and _ack_range(scope, group, settlements.lease, now_ms):
        return [_APPLIED] * len(settlements)
    return [_settle(scope, group, settlement, now_ms) for settlement in settlements]


def _ack_range(scope: MessageScope, group: Group, lease: Lease, now_ms: int) -> bool:
    """Ack a range at once if all of its messages are leased for the first time. Return False if they are not."""
    grant = scope.grants.get(lease.epoch)
    if grant is None or grant.again or group.is_ordered or lease.incarnation != scope.incarnation:
        return False
    bits = ((1 << lease.next - lease.start) - 1) << lease.start - grant.start
    queue = scope.queues[grant.queue]
    if grant.open & bits != bits or grant.until <= now_ms or grant.epoch <= queue.revoked_epoch:
        return False
    _ack(scope, grant, bits, now_ms)
    return True


def _ack(scope: MessageScope, grant: MessageGrant, bits: int, now_ms: int) -> None:
    if grant.open & bits:
        scope.close(grant, bits, now_ms)
    grant.acked |= bits
    scope.change_grant(grant)
    scope.queues[grant.queue].last_consumed_at = now_ms


def status_of(scope: MessageScope, lease: Lease, now_ms: int) -> LeaseStatus:
    """Return the status of the lease of one message."""
    grant = scope.grants.get(lease.epoch)
    if grant is None or lease.incarnation != scope.incarnation:
        return LeaseStatus.UNKNOWN
    number = lease.start - grant.start
    if (grant.acked | grant.nacked) >> number & 1:
        return LeaseStatus.ACKED if grant.acked >> number & 1 else LeaseStatus.NACKED
    queue = scope.queues.get(lease.queue)
    if queue is None or lease.epoch <= queue.revoked_epoch:
        return LeaseStatus.UNKNOWN
    if grant.open >> number & 1:
        return LeaseStatus.EXPIRED if grant.end_of(number) <= now_ms else LeaseStatus.CURRENT
    failed = queue.failed.get(lease.start)
    if failed is not None and failed.epoch == lease.epoch and failed.ready_at is not None:
        return LeaseStatus.EXPIRED
    return LeaseStatus.DELETED if lease.start < queue.head_min else LeaseStatus.SUPERSEDED


def _settle(scope: MessageScope, group: Group, settlement: Settlement, now_ms: int) -> SettlementResult:
    lease = settlement.lease
    status = status_of(scope, lease, now_ms)
    outcome = outcome_of(status, settlement.verb)
    if not outcome.is_new:
        return SettlementResult(outcome)
    grant = scope.grants[lease.epoch]
    number = lease.start - grant.start
    if settlement.verb is Verb.ACK:
        _ack(scope, grant, 1 << number, now_ms)
        # A first delivery that is leased has no FailedMessage, and without order no message waits for it.
        if grant.again or status is LeaseStatus.EXPIRED or group.is_ordered:
            finish(scope, group, grant.queue, lease.start, now_ms)
        return SettlementResult(outcome)
    if settlement.verb is Verb.NACK:
        return _nack(scope, group, grant, number, settlement, outcome, now_ms)
    return _extend(scope, group, grant, number, settlement, outcome, now_ms)


def finish(scope: MessageScope, group: Group, queue: str, offset: int, now_ms: int) -> None:
    """Settle a message. The next message of its key becomes ready."""
    scope.remove_failed(queue, offset)
    if not group.is_ordered:
        return
    row = scope.queues[queue]
    if offset not in row.keys:
        return
    following = row.remove_key(offset)
    scope.changes.keys.add((queue, offset))
    failed = None if following is None else row.failed.get(following)
    if following is not None and failed is not None and failed.ready_at is None and failed.delivery == 0:
        failed.ready_at = now_ms
        scope.change_failed(queue, following, failed)


def _nack(
    scope: MessageScope,
    group: Group,
    grant: MessageGrant,
    number: int,
    settlement: Settlement,
    outcome: SettlementOutcome,
    now_ms: int,
) -> SettlementResult:
    delay = settlement.delay
    if delay is None:
        delay = group.backoff.delay(grant.delivery, _DICE)
    if grant.open >> number & 1:
        scope.close(grant, 1 << number, now_ms)
    grant.nacked |= 1 << number
    scope.change_grant(grant)
    reason = settlement.reason or "nacked"
    is_dead = fail(scope, group, grant, number, now_ms + delay // _MS, now_ms, reason, is_lease_expired=0)
    exhausted = scope.exhausted(grant.queue, grant.start + number) if is_dead else None
    return SettlementResult(outcome, exhausted=exhausted)


def _extend(
    scope: MessageScope,
    group: Group,
    grant: MessageGrant,
    number: int,
    settlement: Settlement,
    outcome: SettlementOutcome,
    now_ms: int,
) -> SettlementResult:
    until = now_ms + (settlement.visibility or group.visibility) // _MS
    if until > grant.granted_at + _MAX_HOLD_MS:
        return hold_limit_exceeded()
    grant.ends = grant.ends or {}
    grant.ends[number] = until
    if not grant.open >> number & 1:
        # The lease had expired and nothing newer was granted: the message is leased again.
        offset = grant.start + number
        grant.open |= 1 << number
        grant.again = 1
        scope.in_flight += 1
        scope.changes.has_counters = True
        failed = scope.queues[grant.queue].failed[offset]
        grant_again(scope, grant, offset, failed, grant.granted_at)
        grant.update_until()
        scope.file_open(grant)
    scope.change_grant(grant)
    return SettlementResult(outcome, leased_until=instant(until))


def grant_again(scope: MessageScope, grant: MessageGrant, offset: int, failed: FailedMessage, now_ms: int) -> None:
    """Let a failed message be leased by a grant."""
    failed.ready_at = None
    failed.epoch = grant.epoch
    failed.delivery = grant.delivery
    failed.is_lease_expired = 0
    if grant.delivery == 1:
        failed.first_at = now_ms
    scope.change_failed(grant.queue, offset, failed)


def fail(
    scope: MessageScope,
    group: Group,
    grant: MessageGrant,
    number: int,
    ready_at: int,
    at: int,
    reason: str,
    *,
    is_lease_expired: int,
) -> bool:
    """Record a failed delivery. Return whether the message is exhausted."""
    is_dead = grant.delivery >= group.max_attempts
    record_failed(
        scope,
        grant,
        grant.start + number,
        FailedMessage(
            grant.epoch,
            grant.delivery,
            None if is_dead else ready_at,
            int(is_dead),
            grant.granted_at,
            at,
            reason,
            is_lease_expired,
        ),
    )
    return is_dead


def record_failed(scope: MessageScope, grant: MessageGrant, offset: int, failed: FailedMessage) -> None:
    """Add or replace a FailedMessage. The time of the first delivery and the last known reason are kept."""
    earlier = scope.queues[grant.queue].failed.get(offset)
    if earlier is not None:
        failed.first_at = earlier.first_at
        failed.reason = earlier.reason if failed.reason is None else failed.reason
        scope.queues[grant.queue].failed[offset] = failed
        scope.change_failed(grant.queue, offset, failed)
    else:
        scope.add_failed(grant.queue, offset, failed)
        scope.changes.failed.add((grant.queue, offset))


def end_leases(scope: MessageScope, group: Group, now_ms: int) -> None:
    """Turn expired leases into failed deliveries. The backoff counts from their end."""
    while (entry := scope.ends.first()) is not None and entry[0] <= now_ms:
        grant = scope.grants[entry[1]]
        for number in list(bits_of(grant.open)):
            end = grant.end_of(number)
            if end <= now_ms:
                delay = group.backoff.delay(grant.delivery, _DICE) // _MS
                scope.close(grant, 1 << number, now_ms)
                fail(scope, group, grant, number, end + delay, end, EXPIRED_REASON, is_lease_expired=1)
        scope.change_grant(grant)


def settle_dead(
    scope: MessageScope, group: Group, exhausted: ExhaustedMessage, now_ms: int, *, is_expired: bool
) -> bool:
    """Settle an exhausted message. Return False if it is not exhausted by this delivery."""
    lease = exhausted.lease
    queue = scope.queues.get(lease.queue)
    failed = None if queue is None else queue.failed.get(lease.start)
    if queue is None or failed is None or not failed.dying or failed.epoch != lease.epoch:
        return False
    finish(scope, group, lease.queue, lease.start, now_ms)
    queue.expired += is_expired
    scope.commit()
    return True
