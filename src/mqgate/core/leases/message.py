"""Steps of message mode: grant messages that are ready again, then new ones. Settlements are in message_settle."""

from collections.abc import Sequence

from mqgate.core.entries import Group
from mqgate.core.errors import AttemptMismatch
from mqgate.core.lease import (
    AcquireRequest,
    AcquireResult,
    Grant,
    PullReport,
    ReceiveState,
    Settlement,
    SettlementResult,
    Verb,
)
from mqgate.core.leases.message_bounds import PULL_MS, end_all, seek, update_bounds
from mqgate.core.leases.message_grant import grant_messages
from mqgate.core.leases.message_ready import due, exhaust_due, exhausted_messages, fresh_queues, next_at
from mqgate.core.leases.message_report import positions, report_pull
from mqgate.core.leases.message_settle import settle_all, settle_dead, status_of
from mqgate.core.leases.message_state import MessageGrant, MessageScope
from mqgate.core.leases.outcomes import LeaseStatus

__all__ = ["acquire", "check_attempt", "positions", "report_pulls", "seek", "settle", "settle_dead"]


def check_attempt(scope: MessageScope, request: AcquireRequest, now_ms: int) -> None:
    """Raise AttemptMismatch if the attempt will find its leases under other parameters.

    This is checked before anything changes, because a refused receive must not apply its settlements either.
    """
    grants = () if request.attempt is None else scope.grants_of(request.attempt)
    if not any(grant.given and grant.fingerprint != request.fingerprint for grant in grants):
        return
    epochs = {grant.epoch for grant in grants}
    for grant in grants:
        queue = scope.queues[grant.queue]
        bounds = request.bounds.get(grant.queue)
        is_rewound = bounds is not None and bounds.max < queue.cursor and grant.given
        is_abandoned = queue.pending_pull == grant.epoch and grant.granted_at + PULL_MS <= now_ms
        if not _is_repeatable(grant, now_ms) or is_rewound or (request.group.is_ordered and is_abandoned):
            return
    if any(_ends_lease(scope, settlement, epochs, now_ms) for settlement in request.settlements):
        return
    raise AttemptMismatch("use a new attemptId when max or visibility change", attemptId=request.attempt)


def _ends_lease(scope: MessageScope, settlement: Settlement, epochs: set[int], now_ms: int) -> bool:
    if settlement.lease.epoch not in epochs or settlement.verb is Verb.EXTEND:
        return False
    return status_of(scope, settlement.lease, now_ms) in {LeaseStatus.CURRENT, LeaseStatus.EXPIRED}


def _is_repeatable(grant: MessageGrant, now_ms: int) -> bool:
    return not grant.is_changed and (not grant.open or grant.until > now_ms)


def acquire(scope: MessageScope, request: AcquireRequest, now_ms: int) -> AcquireResult:
    """Apply the carried settlements, then lease up to `max_count` messages."""
    group, closed = request.group, request.closed
    settled = settle_all(scope, group, request.settlements, now_ms) if request.settlements else ()
    # Before any return: bounds are reported once.
    rewound, unknown_queues = update_bounds(scope, request.bounds, now_ms) if request.bounds else (0, [])
    unknown_queues = [queue for queue in unknown_queues if queue not in closed]
    result = AcquireResult(state_exists=True, settled=settled, rewound=rewound)
    if unknown_queues:
        scope.commit()
        return result._replace(exhausted=exhausted_messages(scope, closed), unknown_queues=unknown_queues)
    end_all(scope, group, now_ms)
    same = None if request.attempt is None else _serve_again(scope, request, now_ms)
    if same:
        return result._replace(grants=same, exhausted=exhausted_messages(scope, closed))
    if group.is_paused:
        exhaust_due(scope, group, closed, request.max_count, now_ms)
        return result._replace(state=ReceiveState.PAUSED, exhausted=exhausted_messages(scope, closed))
    grants, state, lost = grant_messages(scope, request, now_ms)
    if grants and closed and request.attempt is not None:
        # What the attempt was granted in closed queues is no longer its own: it was granted something else.
        for grant in scope.grants_of(request.attempt):
            if grant.queue in closed:
                scope.leave_attempt(grant)
    scope.commit()
    result = result._replace(grants=grants, state=state, lost=lost)
    if scope.dying:
        result = result._replace(exhausted=exhausted_messages(scope, closed))
    if grants and not request.has_other_waiters:
        return result
    fresh = list(fresh_queues(scope, closed))
    return result._replace(
        next_at=next_at(scope, group, closed, state, now_ms),
        is_span_full=state is ReceiveState.BUSY and any(not queue.pending_pull for queue in fresh),
        has_more=bool(grants) and bool(fresh or due(scope, closed, 1, now_ms)),
    )


def _serve_again(scope: MessageScope, request: AcquireRequest, now_ms: int) -> list[Grant]:
    """Return the unchanged leases of the same attempt, as far as their queues can be read."""
    assert request.attempt is not None  # noqa: S101 - for the type checker; the caller checked
    grants = scope.grants_of(request.attempt)
    if not all(_is_repeatable(grant, now_ms) for grant in grants):
        scope.forget_attempt(request.attempt)
        return []
    same = [grant for grant in grants if grant.given and grant.queue not in request.closed]
    for grant in same:
        grant.serves += 1
        scope.changes.grants.add(grant.epoch)
    return [scope.granted(grant) for grant in same]


def settle(scope: MessageScope, group: Group, settlements: Sequence[Settlement], now_ms: int) -> list[SettlementResult]:
    """Apply settlements in order."""
    results = settle_all(scope, group, settlements, now_ms)
    scope.commit()
    return results


def report_pulls(scope: MessageScope, group: Group, reports: Sequence[PullReport], now_ms: int) -> list[frozenset[int]]:
    """Apply pull reports. Return the offsets that stay leased, per report."""
    kept = [report_pull(scope, group, report, now_ms) for report in reports]
    scope.commit()
    return kept
