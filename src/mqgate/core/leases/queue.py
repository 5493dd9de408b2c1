"""Steps of queue and broadcast mode: choose a queue and lease it. Settlements are in queue_settle."""

import contextlib
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from mqgate.core.entries import Group, OnPoison
from mqgate.core.errors import AttemptMismatch
from mqgate.core.lease import (
    AGEING,
    AcquireRequest,
    AcquireResult,
    ExhaustedMessage,
    Grant,
    OffsetRange,
    Position,
    QueueBounds,
    ReceiveState,
    SeekResult,
    SettlementResult,
    Verb,
    batch_size,
)
from mqgate.core.leases.outcomes import LeaseStatus
from mqgate.core.leases.queue_settle import exhaust, lease_of, report_pull, settle, settle_dead, status_of
from mqgate.core.leases.queue_state import LAST_ATTEMPT, NOT_EXHAUSTED, QueueLease, QueueScope
from mqgate.core.leases.ranking import Ranking
from mqgate.core.message import instant

__all__ = ["acquire", "check_attempt", "positions", "report_pull", "seek", "settle", "settle_dead"]

_DICE = random.Random()  # noqa: S311 - jitter, not secrets
_MS = timedelta(milliseconds=1)
_AGEING_MS = AGEING // _MS


def check_attempt(scope: QueueScope, request: AcquireRequest, now_ms: int) -> None:
    """Raise AttemptMismatch if the attempt will find its lease under other parameters.

    This is checked before anything changes, because a refused receive must not apply its settlements either.
    """
    queue = None if request.attempt is None else scope.of_attempt(request.attempt, now_ms)
    if queue is None or queue.fingerprint == request.fingerprint:
        return
    bounds = request.bounds.get(queue.name)
    is_rewound = bounds is not None and bounds.max < queue.committed
    if not is_rewound and not any(
        settlement.verb is not Verb.EXTEND
        and (settlement.lease.client, settlement.lease.queue) == (scope.client, queue.name)
        and status_of(scope, settlement.lease, now_ms) is LeaseStatus.CURRENT
        for settlement in request.settlements
    ):
        raise AttemptMismatch("use a new attemptId when max or visibility change", attemptId=request.attempt)


def acquire(
    scope: QueueScope, request: AcquireRequest, settled: Sequence[SettlementResult], now_ms: int
) -> AcquireResult:
    """Lease one queue, after the carried settlements were applied with the results `settled`."""
    group, closed = request.group, request.closed
    exhausted = [each.exhausted for each in settled if each.exhausted and each.exhausted.lease.queue not in closed]
    # Before any return: bounds are reported once.
    rewound, unknown_queues = update_bounds(scope, request.bounds, request.last_append_ms, now_ms)
    unknown_queues = [queue for queue in unknown_queues if queue not in closed]
    result = AcquireResult(state_exists=True, settled=settled, rewound=rewound, exhausted=exhausted)
    if unknown_queues:
        return result._replace(unknown_queues=unknown_queues)
    same = None if request.attempt is None else scope.of_attempt(request.attempt, now_ms)
    if same is not None and same.name not in closed:
        return result._replace(grants=(_serve_again(scope, same),))
    if group.is_paused:
        return result._replace(state=ReceiveState.PAUSED)
    exhausted += end_leases(scope, group, closed, now_ms)
    queue = _choose(scope, closed, now_ms)
    while queue is not None and _is_overdrawn(queue, group):
        exhausted += _exhaust_overdrawn(scope, group, queue, now_ms)
        queue = _choose(scope, closed, now_ms)
    if queue is None:
        grant, lost = None, _skip_emptied(scope, closed)
        state = ReceiveState.BUSY if scope.with_backlog else ReceiveState.OK
    else:
        grant, lost = _grant(scope, request, queue, now_ms)
        state = ReceiveState.OK if grant else ReceiveState.RATE_LIMITED
    result = result._replace(grants=(grant,) if grant else (), state=state, lost=lost)
    if grant and not request.has_other_waiters:
        return result
    return result._replace(
        next_at=_next_at(scope, group, state, closed, now_ms),
        has_more=grant is not None and _choose(scope, closed, now_ms) is not None,
    )


def update_bounds(
    scope: QueueScope, bounds: Mapping[str, QueueBounds], last_append_ms: Mapping[str, int], now_ms: int
) -> tuple[int, list[str]]:
    """Store new bounds. Return by how much truncated queues were rewound, and the queues that are unknown."""
    rewound = 0
    unknown_queues = []
    for name, (head_min, head_max) in bounds.items():
        queue = scope.queues.get(name)
        if queue is None:
            unknown_queues.append(name)
            continue
        if (queue.head_min, queue.head_max) == (head_min, head_max):
            continue
        if queue.backlog <= 0:
            queue.waiting_since = min(last_append_ms.get(name, now_ms), now_ms)
        queue.head_min, queue.head_max = head_min, head_max
        if queue.committed > head_max:
            rewound += queue.committed - head_min
            _move(queue, head_min, now_ms)
        scope.change(queue)
    return rewound, unknown_queues


def _move(queue: QueueLease, offset: int, now_ms: int) -> None:
    """Set the committed offset and revoke every earlier lease."""
    queue.committed = offset
    queue.next_epoch()
    queue.revoked_epoch = queue.epoch
    queue.release(now_ms)
    queue.forget_attempts()
    queue.exhausted = NOT_EXHAUSTED
    queue.waiting_since = now_ms


def _serve_again(scope: QueueScope, queue: QueueLease) -> Grant:
    queue.serves += 1
    scope.change(queue)
    times = instant(queue.granted_at), instant(queue.leased_until)
    return Grant(lease_of(scope, queue), queue.attempts, *times, queue.serves)


def end_leases(scope: QueueScope, group: Group, closed: frozenset[str], now_ms: int) -> list[ExhaustedMessage]:
    """Free the queues whose leases ended. Return the messages whose last lease ended."""
    while (entry := scope.held.first()) is not None and entry[0] <= now_ms:
        queue = scope.queues[entry[1]]
        queue.held = 0
        scope.change(queue)
    exhausted = []
    for name in sorted(scope.exhausted - closed) if scope.exhausted else ():
        queue = scope.queues[name]
        if queue.held:
            continue
        if queue.attempts < group.max_attempts or queue.committed < queue.head_min:
            # The limit was raised, or retention deleted the message.
            queue.attempts = queue.attempts if queue.committed >= queue.head_min else 0
            queue.exhausted = NOT_EXHAUSTED
            scope.change(queue)
        elif group.on_poison is OnPoison.DEAD:
            exhausted.append(exhaust(scope, queue, now_ms))
    return exhausted


def _is_overdrawn(queue: QueueLease, group: Group) -> bool:
    """Return whether the first message had all its attempts, because maxAttempts was lowered since."""
    return queue.attempts >= group.max_attempts and queue.committed >= queue.head_min


def _exhaust_overdrawn(scope: QueueScope, group: Group, queue: QueueLease, now_ms: int) -> list[ExhaustedMessage]:
    queue.exhausted = LAST_ATTEMPT
    scope.change(queue)
    return [exhaust(scope, queue, now_ms)] if group.on_poison is OnPoison.DEAD else []


def _choose(scope: QueueScope, closed: frozenset[str], now_ms: int) -> QueueLease | None:
    """Return the queue that was not served for AGEING, longest wait first, else the one with the largest backlog."""
    oldest = scope.by_age.first() if not closed else _first_open(scope.by_age, closed)
    if oldest is None:
        return None
    if oldest[0] + _AGEING_MS <= now_ms:
        return scope.queues[oldest[1]]
    fullest = scope.by_backlog.first() if not closed else _first_open(scope.by_backlog, closed)
    assert fullest is not None, "the same queues are in both rankings"  # noqa: S101 - for the type checker
    return scope.queues[fullest[1]]


def _first_open(ranking: Ranking[str], closed: frozenset[str]) -> tuple[Any, str] | None:
    with contextlib.closing(ranking.ascending()) as entries:
        return next((entry for entry in entries if entry[1] not in closed), None)


def _grant(
    scope: QueueScope, request: AcquireRequest, queue: QueueLease, now_ms: int
) -> tuple[Grant | None, list[OffsetRange]]:
    """Lease a queue. Return the grant, None without tokens, and what retention had deleted."""
    group = request.group
    start = queue.first
    expired = start - queue.committed
    attempts = 1 if expired else queue.attempts + 1
    count = min(batch_size(request.max_count, attempts, group.max_attempts), queue.head_max - start)
    if group.rate_limit is not None:
        count = scope.tokens.take(group.rate_limit, count, now_ms)
        if not count:
            return None, []
    lost = [OffsetRange(queue.name, queue.committed, start)] if expired else []
    # A batch that ended other than by lease expiry has no serves.
    lease_expired = max(queue.batch_next - start, 0) if queue.serves else 0
    until = now_ms + request.visibility // _MS
    queue.committed = start
    queue.next_epoch()
    queue.batch_next = start + count
    queue.granted_at = now_ms
    queue.leased_until = until
    queue.held = 1
    queue.free_at = until + group.backoff.delay(attempts, _DICE) // _MS
    scope.set_attempt(queue, request.attempt, request.fingerprint)
    queue.serves = 1
    queue.returned = 0
    queue.attempts = attempts
    queue.exhausted = LAST_ATTEMPT if attempts >= group.max_attempts else NOT_EXHAUSTED
    queue.first_at = queue.first_at if attempts > 1 else now_ms
    queue.waiting_since = now_ms
    queue.last_client = request.polled_by
    queue.expired += expired
    scope.change(queue)
    times = instant(now_ms), instant(until)
    return Grant(lease_of(scope, queue), attempts, *times, lease_expired=lease_expired), lost


def _skip_emptied(scope: QueueScope, closed: frozenset[str]) -> list[OffsetRange]:
    """Report queues that retention has emptied now, because nothing in them will be granted."""
    lost = []
    for name in sorted(scope.emptied - closed) if scope.emptied else ():
        queue = scope.queues[name]
        lost.append(OffsetRange(name, queue.committed, queue.head_min))
        queue.expired += queue.head_min - queue.committed
        queue.committed = queue.head_min
        queue.forget_attempts()
        scope.change(queue)
    return lost


def _next_at(
    scope: QueueScope, group: Group, state: ReceiveState, closed: frozenset[str], now_ms: int
) -> datetime | None:
    """Return when a queue becomes free, or a token is available, by time alone."""
    if state is ReceiveState.RATE_LIMITED:
        at = scope.tokens.next_at(group.rate_limit, now_ms)
    else:
        entry = scope.held.first() if not closed else _first_open(scope.held, closed)
        at = None if entry is None else entry[0]
    return None if at is None else instant(max(at, now_ms))


def seek(
    scope: QueueScope,
    targets: Mapping[str, int],
    bounds: Mapping[str, QueueBounds],
    last_append_ms: Mapping[str, int],
    now_ms: int,
    *,
    is_dry_run: bool,
) -> list[SeekResult]:
    """Set committed offsets and revoke every earlier lease. A dry run returns the same result."""
    _, unknown_queues = update_bounds(scope, bounds, last_append_ms, now_ms)
    for name in unknown_queues:
        scope.open(name, bounds[name].min, bounds[name], now_ms)
    moves = [SeekResult(name, scope.queues[name].committed, to) for name, to in targets.items() if name in scope.queues]
    if not is_dry_run:
        for move in moves:
            _move(scope.queues[move.queue], move.new, now_ms)
            scope.change(scope.queues[move.queue])
    return moves


def positions(
    scope: QueueScope,
    group: Group,
    bounds: Mapping[str, QueueBounds],
    last_append_ms: Mapping[str, int],
    now_ms: int,
) -> tuple[list[Position], list[ExhaustedMessage]]:
    """Return the position of each queue, and the exhausted messages that block queues."""
    update_bounds(scope, bounds, last_append_ms, now_ms)
    exhausted = end_leases(scope, group, frozenset(), now_ms)
    for name in sorted(scope.by_age):
        if _is_overdrawn(scope.queues[name], group):
            exhausted += _exhaust_overdrawn(scope, group, scope.queues[name], now_ms)
    return [_position(scope.queues[name], now_ms) for name in sorted(scope.queues)], exhausted


def _position(queue: QueueLease, now_ms: int) -> Position:
    is_leased = bool(queue.held) and now_ms < queue.leased_until
    batch = max(queue.batch_next - queue.first, 0) if queue.held else 0
    return Position(
        queue=queue.name,
        min=queue.head_min,
        max=queue.head_max,
        committed=queue.committed,
        cursor=queue.batch_next if is_leased else queue.committed,
        ready=max(queue.backlog - batch, 0),
        leased=batch if is_leased else 0,
        waiting=0 if is_leased else batch,
        locked_until=instant(queue.leased_until) if is_leased else None,
        last_client=queue.last_client,
        last_consumed_at=instant(queue.last_consumed_at) if queue.last_consumed_at else None,
        attempts=queue.attempts,
        is_blocked=bool(queue.exhausted) and not queue.held,
        expired=queue.expired,
        epoch=queue.epoch,
    )
