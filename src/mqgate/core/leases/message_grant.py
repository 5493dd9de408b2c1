"""Message mode: grants. First messages that are ready again, then new ones of the queues in turn."""

import contextlib
from datetime import timedelta

from mqgate.core.lease import MAX_SPAN, AcquireRequest, Grant, OffsetRange, ReceiveState
from mqgate.core.leases.message_ready import due, exhaust, exhaust_due, fresh_queues, is_overdrawn
from mqgate.core.leases.message_settle import finish, grant_again
from mqgate.core.leases.message_state import FailedMessage, MessageGrant, MessageScope

__all__ = ["grant_messages"]

_MS = timedelta(milliseconds=1)
# Other groups are not served meanwhile.
_MAX_OVERTAKEN = 1_000
_Due = tuple[str, int, FailedMessage]


def grant_messages(
    scope: MessageScope, request: AcquireRequest, now_ms: int
) -> tuple[list[Grant], ReceiveState, list[OffsetRange]]:
    """Lease messages. Return the grants, why there are none, and what retention had deleted."""
    group, closed = request.group, request.closed
    room = min(request.max_count, group.max_in_flight - scope.in_flight)
    if room <= 0:
        exhaust_due(scope, group, closed, request.max_count, now_ms)
        return [], ReceiveState.IN_FLIGHT_CAP, []
    lost = _expire(scope, request, now_ms) if scope.overtaken else []
    allowed = room if group.rate_limit is None else scope.tokens.take(group.rate_limit, room, now_ms)
    grants = _redeliver(scope, request, allowed, now_ms) if allowed and scope.ready else []
    left = allowed - sum(grant.lease.next - grant.lease.start for grant in grants)
    if left:
        left = _grant_fresh(scope, request, left, grants, lost, now_ms)
    scope.tokens.refund(group.rate_limit, left)
    if grants:
        return grants, ReceiveState.OK, lost
    if allowed and scope.emptied:
        lost += _skip_emptied(scope, closed)
    scope.commit()
    if not scope.fresh and not scope.unsettled:
        return [], ReceiveState.OK, lost
    state = ReceiveState.BUSY
    if not allowed:
        exhaust_due(scope, group, closed, request.max_count, now_ms)
        if next(fresh_queues(scope, closed), None) is not None or due(scope, closed, 1, now_ms):
            state = ReceiveState.RATE_LIMITED
    return [], state, lost


def _expire(scope: MessageScope, request: AcquireRequest, now_ms: int) -> list[OffsetRange]:
    """Settle messages that were granted before, are not leased and were deleted by retention. They are reported now.

    What is leased is left to its receipt.
    """
    lost: list[OffsetRange] = []
    for name in sorted(scope.overtaken - request.closed):
        queue = scope.queues[name]
        first = queue.first_failed()
        if first is None or first >= queue.head_min:
            continue
        offsets = sorted(
            offset
            for offset, failed in queue.failed.items()
            if offset < queue.head_min and (failed.ready_at is not None or failed.dying or not failed.delivery)
        )
        for offset in offsets[: _MAX_OVERTAKEN - len(lost)]:
            finish(scope, request.group, name, offset, now_ms)
            queue.expired += 1
            lost.append(OffsetRange(name, offset, offset + 1))
    scope.commit()
    return lost


def _redeliver(scope: MessageScope, request: AcquireRequest, max_count: int, now_ms: int) -> list[Grant]:
    """Grant messages that are ready again. Neighbours with the same history become one range."""
    runs: list[list[_Due]] = []
    for entry in due(scope, request.closed, max_count, now_ms):
        queue, offset, failed = entry
        if offset < scope.queues[queue].head_min:
            continue
        if is_overdrawn(request.group, failed):
            exhaust(scope, queue, offset, failed)
            continue
        if runs and _continues(runs[-1][-1], entry):
            runs[-1].append(entry)
        else:
            runs.append([entry])
    grants = []
    for run in runs:
        queue, start, first = run[0]
        lease_expired = len(run) if first.is_lease_expired else 0
        grant = _add(scope, request, queue, start, len(run), now_ms, delivery=first.delivery + 1, again=1)
        for _, offset, failed in run:
            grant_again(scope, grant, offset, failed, now_ms)
        grants.append(scope.granted(grant)._replace(lease_expired=lease_expired))
    return grants


def _continues(last: _Due, entry: _Due) -> bool:
    (queue, offset, failed), (next_queue, next_offset, following) = last, entry
    return (queue, offset + 1, failed.delivery, failed.is_lease_expired) == (
        next_queue,
        next_offset,
        following.delivery,
        following.is_lease_expired,
    )


def _grant_fresh(
    scope: MessageScope,
    request: AcquireRequest,
    max_count: int,
    grants: list[Grant],
    lost: list[OffsetRange],
    now_ms: int,
) -> int:
    """Grant messages that were never granted. Return how many fewer than `max_count` there were."""
    served = []
    with contextlib.closing(fresh_queues(scope, request.closed)) as queues:
        for queue in queues:
            if queue.pending_pull:
                continue
            start = max(queue.cursor, queue.head_min)
            committed = queue.committed if queue.committed < queue.cursor else start
            count = min(max_count, queue.head_max - start, committed + MAX_SPAN - start)
            if count <= 0:
                continue
            served.append((queue, start, count, committed))
            max_count -= count
            if not max_count:
                break
    for queue, start, count, committed in served:
        grant = _add(scope, request, queue.name, start, count, now_ms)
        if start > queue.cursor:
            lost.append(OffsetRange(queue.name, queue.cursor, start))
            queue.expired += start - queue.cursor
        queue.cursor = start + count
        queue.committed = committed
        queue.pending_pull = grant.epoch if request.group.is_ordered else 0
        queue.served_at = now_ms
        queue.last_client = request.polled_by
        scope.change_queue(queue)
        grants.append(scope.granted(grant))
    return max_count


def _skip_emptied(scope: MessageScope, closed: frozenset[str]) -> list[OffsetRange]:
    """Report queues that retention has emptied now, because nothing new in them will be granted."""
    lost: list[OffsetRange] = []
    for name in sorted(scope.emptied - closed):
        queue = scope.queues[name]
        lost.append(OffsetRange(name, queue.cursor, queue.head_min))
        queue.expired += queue.head_min - queue.cursor
        queue.committed = queue.committed if queue.committed < queue.cursor else queue.head_min
        queue.cursor = queue.head_min
        scope.change_queue(queue)
    return lost


def _add(
    scope: MessageScope,
    request: AcquireRequest,
    queue: str,
    start: int,
    count: int,
    now_ms: int,
    *,
    delivery: int = 1,
    again: int = 0,
) -> MessageGrant:
    scope.epoch += 1
    scope.in_flight += count
    until = now_ms + request.visibility // _MS
    bits = (1 << count) - 1
    grant = MessageGrant(
        epoch=scope.epoch,
        queue=queue,
        start=start,
        delivery=delivery,
        granted_at=now_ms,
        base_until=until,
        ends=None,
        until=until,
        given=bits,
        open=bits,
        acked=0,
        nacked=0,
        ended_at=0,
        attempt=request.attempt,
        fingerprint=None if request.attempt is None else request.fingerprint,
        serves=1,
        returned=0,
        client=request.polled_by,
        again=again,
    )
    scope.add_grant(grant)
    scope.changes.grants.add(grant.epoch)
    scope.changes.has_counters = True
    return grant
