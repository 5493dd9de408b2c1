"""Message mode: pull reports and positions."""

from collections.abc import Mapping

from mqgate.core.entries import Group
from mqgate.core.lease import (
    ExhaustedMessage,
    Position,
    PullReport,
    QueueBounds,
    all_serves_returned,
    mark_serve_returned,
)
from mqgate.core.leases.message_bounds import end_all, update_bounds
from mqgate.core.leases.message_ready import exhaust, exhausted_messages, is_overdrawn
from mqgate.core.leases.message_settle import finish, record_failed
from mqgate.core.leases.message_state import FailedMessage, MessageGrant, MessageQueue, MessageScope, bits_of
from mqgate.core.message import instant

__all__ = ["positions", "report_pull"]


def report_pull(scope: MessageScope, group: Group, report: PullReport, now_ms: int) -> frozenset[int]:
    """Release what the pull did not find and settle what the filter dropped. Return the offsets that stay leased."""
    given, after, kept = report
    grant = scope.grants.get(given.lease.epoch)
    if grant is None or given.serve > grant.serves or given.lease.incarnation != scope.incarnation:
        return frozenset()
    if given.serve < grant.serves or after <= grant.start:
        # The response was not delivered; or another response of the attempt reports, and this one stays empty.
        grant.returned = mark_serve_returned(grant.returned, given.serve)
        scope.changes.grants.add(grant.epoch)
        if not all_serves_returned(grant.returned, grant.serves):
            return frozenset()
        after = grant.start
    before = grant.open.bit_count()
    queue = scope.queues[grant.queue]
    _release(scope, queue, grant, after, now_ms)
    if kept is not None:
        _keep(scope, group, queue, grant, kept, now_ms)
    if queue.pending_pull == grant.epoch:
        queue.pending_pull = 0
        scope.change_queue(queue)
    scope.tokens.refund(group.rate_limit, before - grant.open.bit_count())
    grant.given = grant.open
    scope.change_grant(grant)
    if grant.fingerprint is not None and not grant.given | grant.acked | grant.nacked:
        # Nothing of it belongs to the attempt any more.
        scope.leave_attempt(grant)
    return frozenset(grant.start + number for number in bits_of(grant.open))


def _release(scope: MessageScope, queue: MessageQueue, grant: MessageGrant, after: int, now_ms: int) -> None:
    """Release the messages from `after` on: ready at once, and not counted."""
    end = grant.start + grant.open.bit_length()
    if after >= end:
        return
    is_tail = _is_tail(queue, grant)
    for number in list(bits_of(grant.open)):
        offset = grant.start + number
        if offset < after:
            continue
        scope.close(grant, 1 << number, now_ms)
        if not is_tail:
            ready = FailedMessage(grant.epoch, grant.delivery - 1, now_ms, 0, grant.granted_at, now_ms, None)
            record_failed(scope, grant, offset, ready)
    if is_tail:
        queue.cursor = max(after, grant.start)
        queue.pending_pull = 0
        for offset in [offset for offset in queue.keys if offset >= queue.cursor]:
            queue.remove_key(offset)
            scope.changes.keys.add((queue.name, offset))
        scope.change_queue(queue)


def _is_tail(queue: MessageQueue, grant: MessageGrant) -> bool:
    """Return whether a new range is unchanged and the last one granted: then the cursor can move back."""
    count = grant.given.bit_length()
    if grant.delivery != 1 or queue.cursor != grant.start + count:
        return False
    if not grant.open == grant.given == (1 << count) - 1:
        return False
    # A failed message is granted again by its own state, never by the cursor as well.
    return not queue.failed or not any(offset in queue.failed for offset in range(grant.start, queue.cursor))


def _keep(
    scope: MessageScope,
    group: Group,
    queue: MessageQueue,
    grant: MessageGrant,
    kept: Mapping[int, str | None],
    now_ms: int,
) -> None:
    """Settle the messages that the filter dropped. In an ordered group, hold back what is not the first of its key."""
    for number in list(bits_of(grant.open)):
        offset = grant.start + number
        if offset not in kept:
            scope.close(grant, 1 << number, now_ms)
            finish(scope, group, queue.name, offset, now_ms)
            continue
        key = kept[offset] if group.is_ordered else None
        if key is None:
            continue
        if queue.add_key(offset, key):
            scope.changes.keys.add((queue.name, offset))
        if queue.offsets_of_key[queue.keys[offset]][0] < offset:
            scope.close(grant, 1 << number, now_ms)
            behind = FailedMessage(grant.epoch, 0, None, 0, grant.granted_at, now_ms, None)
            record_failed(scope, grant, offset, behind)


def positions(
    scope: MessageScope, group: Group, bounds: Mapping[str, QueueBounds], now_ms: int
) -> tuple[list[Position], list[ExhaustedMessage]]:
    """Return the position of each queue, and the exhausted messages."""
    update_bounds(scope, bounds, now_ms)
    end_all(scope, group, now_ms)
    leased = dict.fromkeys(scope.queues, 0)
    for epoch in scope.ends:
        grant = scope.grants[epoch]
        leased[grant.queue] += grant.open.bit_count()
    found = [_position(scope, group, scope.queues[name], leased[name], now_ms) for name in sorted(scope.queues)]
    return found, exhausted_messages(scope)


def _position(scope: MessageScope, group: Group, queue: MessageQueue, leased: int, now_ms: int) -> Position:
    ready = waiting = 0
    for offset, failed in queue.failed.items():
        grant = scope.grants.get(failed.epoch)
        is_leased = grant is not None and grant.queue == queue.name and grant.is_open(offset)
        # The next receive reports what retention deleted.
        if is_leased or offset < queue.head_min:
            continue
        is_ready = failed.ready_at is not None and failed.ready_at <= now_ms
        if is_ready and is_overdrawn(group, failed):
            exhaust(scope, queue.name, offset, failed)
            is_ready = False
        ready += is_ready
        waiting += not is_ready
    return Position(
        queue=queue.name,
        min=queue.head_min,
        max=queue.head_max,
        committed=queue.committed,
        cursor=queue.cursor,
        ready=ready + max(queue.fresh, 0),
        leased=leased,
        waiting=waiting,
        locked_until=None,
        last_client=queue.last_client,
        last_consumed_at=instant(queue.last_consumed_at) if queue.last_consumed_at else None,
        attempts=0,
        is_blocked=False,
        expired=queue.expired,
        epoch=queue.pending_pull,
    )
