"""Message mode: what the log and time change. Bounds of queues, seeks, expired leases and abandoned pulls."""

from collections.abc import Mapping
from datetime import timedelta

from mqgate.core.entries import Group
from mqgate.core.lease import QueueBounds, SeekResult
from mqgate.core.leases.message_settle import end_leases
from mqgate.core.leases.message_state import MessageQueue, MessageScope, bits_of

__all__ = ["PULL_MS", "end_all", "seek", "update_bounds"]

# A gateway that has not reported its pull after this time has crashed.
PULL_MS = timedelta(seconds=10) // timedelta(milliseconds=1)


def update_bounds(scope: MessageScope, bounds: Mapping[str, QueueBounds], now_ms: int) -> tuple[int, list[str]]:
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
        queue.head_min, queue.head_max = head_min, head_max
        if queue.cursor > head_max:
            rewound += queue.cursor - head_min
            _move(scope, queue, head_min, now_ms)
        scope.change_queue(queue)
    return rewound, unknown_queues


def _move(scope: MessageScope, queue: MessageQueue, offset: int, now_ms: int) -> None:
    """Set the committed offset and the cursor, and revoke every earlier lease."""
    for epoch in [epoch for epoch in scope.ends if scope.grants[epoch].queue == queue.name]:
        grant = scope.grants[epoch]
        scope.close(grant, grant.open, now_ms)
        scope.change_grant(grant)
    for failed in list(queue.failed):
        scope.remove_failed(queue.name, failed)
    scope.changes.keys.update((queue.name, keyed) for keyed in queue.keys)
    queue.keys.clear()
    queue.offsets_of_key.clear()
    queue.committed = queue.cursor = offset
    queue.revoked_epoch = scope.epoch
    queue.pending_pull = 0
    queue.served_at = now_ms
    scope.commit()
    scope.change_queue(queue)


def end_all(scope: MessageScope, group: Group, now_ms: int) -> None:
    """End what time has ended: abandoned pulls of ordered groups, then leases."""
    if group.is_ordered and scope.pending_pulls:
        # As failed messages they would be delivered out of order.
        _end_abandoned_pulls(scope, now_ms)
    end_leases(scope, group, now_ms)
    scope.commit()


def _end_abandoned_pulls(scope: MessageScope, now_ms: int) -> None:
    """Take back ordered ranges whose gateway crashed before it reported the keys, as if they were not granted."""
    for name in list(scope.pending_pulls):
        queue = scope.queues[name]
        grant = scope.grants.get(queue.pending_pull)
        if grant is None or min(grant.until, grant.granted_at + PULL_MS) > now_ms:
            continue
        for number in list(bits_of(grant.open)):
            scope.close(grant, 1 << number, now_ms)
            scope.remove_failed(name, grant.start + number)
        scope.change_grant(grant)
        queue.cursor = grant.start
        queue.pending_pull = 0
        scope.change_queue(queue)


def seek(
    scope: MessageScope, targets: Mapping[str, int], bounds: Mapping[str, QueueBounds], now_ms: int, *, is_dry_run: bool
) -> list[SeekResult]:
    """Set committed offsets and cursors and revoke every earlier lease. A dry run returns the same result."""
    _, unknown_queues = update_bounds(scope, bounds, now_ms)
    for name in unknown_queues:
        scope.open(name, bounds[name].min, bounds[name], now_ms)
    moves = [_move_result(scope, scope.queues[name], to) for name, to in targets.items() if name in scope.queues]
    if not is_dry_run:
        for result in moves:
            _move(scope, scope.queues[result.queue], result.new, now_ms)
            scope.change_queue(scope.queues[result.queue])
    return moves


def _move_result(scope: MessageScope, queue: MessageQueue, to: int) -> SeekResult:
    unsettled = set(queue.failed)
    for epoch in scope.ends:
        grant = scope.grants[epoch]
        if grant.queue == queue.name:
            unsettled.update(grant.start + number for number in bits_of(grant.open))

    def done(low: int, high: int) -> int:
        return max(high - low, 0) - sum(low <= offset < high for offset in unsettled)

    done_behind = done(max(queue.committed, to), queue.cursor)
    return SeekResult(queue.name, queue.committed, to, done(queue.committed, min(to, queue.cursor)), done_behind)
