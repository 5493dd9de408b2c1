"""Message mode: what can be granted now, which messages are exhausted, and when there will be more."""

import contextlib
from collections.abc import Generator
from datetime import datetime
from itertools import islice

from mqgate.core.entries import Group
from mqgate.core.lease import ExhaustedMessage, ReceiveState
from mqgate.core.leases.message_state import FailedMessage, MessageQueue, MessageScope
from mqgate.core.message import instant

__all__ = ["due", "exhaust", "exhaust_due", "exhausted_messages", "fresh_queues", "is_overdrawn", "next_at"]

_MAX_RANGES = 64


def exhausted_messages(scope: MessageScope, closed: frozenset[str] = frozenset()) -> list[ExhaustedMessage]:
    """Return the exhausted messages that can be read."""
    return [
        scope.exhausted(queue, offset)
        for queue, offset in sorted(scope.dying)
        if queue not in closed and offset >= scope.queues[queue].head_min
    ]


def due(
    scope: MessageScope, closed: frozenset[str], max_count: int, now_ms: int
) -> list[tuple[str, int, FailedMessage]]:
    """Return messages that are ready again, those that were ready first, ordered by queue and offset."""
    first = scope.ready.first()
    if first is None or first[0] > now_ms:
        return []
    places: list[tuple[str, int]] = []
    with contextlib.closing(scope.ready.ascending()) as entries:
        for ready_at, place in entries:
            if ready_at > now_ms or len(places) == max_count:
                break
            if place[0] not in closed:
                places.append(place)
    return [(queue, offset, scope.queues[queue].failed[offset]) for queue, offset in sorted(places)]


def exhaust_due(scope: MessageScope, group: Group, closed: frozenset[str], max_count: int, now_ms: int) -> None:
    """Exhaust messages that had all their deliveries, though nothing can be granted now."""
    for queue, offset, failed in due(scope, closed, max_count, now_ms):
        if is_overdrawn(group, failed) and offset >= scope.queues[queue].head_min:
            exhaust(scope, queue, offset, failed)


def is_overdrawn(group: Group, failed: FailedMessage) -> bool:
    """Return whether a message that is ready again had all its deliveries, because maxAttempts was lowered."""
    return failed.delivery >= group.max_attempts


def exhaust(scope: MessageScope, queue: str, offset: int, failed: FailedMessage) -> None:
    """Let a message become a dead letter. From here on its receipts are superseded."""
    failed.ready_at = None
    failed.dying = 1
    scope.change_failed(queue, offset, failed)


def fresh_queues(scope: MessageScope, closed: frozenset[str]) -> Generator[MessageQueue]:
    """Yield queues with messages that were never granted, the least recently served first.

    Close the iterator before the next change.
    """
    with contextlib.closing(scope.fresh.ascending()) as entries:
        names = (name for _, name in entries if name not in closed)
        yield from map(scope.queues.__getitem__, islice(names, _MAX_RANGES))


def next_at(
    scope: MessageScope, group: Group, closed: frozenset[str], state: ReceiveState, now_ms: int
) -> datetime | None:
    """Return when messages become ready by time alone.

    Without tokens, or at the in-flight limit, messages that are ready are no reason to try again.
    """
    if state is ReceiveState.RATE_LIMITED:
        times = [scope.tokens.next_at(group.rate_limit, now_ms)]
    elif state is ReceiveState.IN_FLIGHT_CAP:
        # Closed queues too: their leases count towards the limit.
        end = scope.ends.first()
        times = [None if end is None else end[0]]
    else:
        times = [_first_end(scope, closed), _first_ready(scope, closed)]
    known = [at for at in times if at is not None]
    return instant(max(min(known), now_ms)) if known else None


def _first_end(scope: MessageScope, closed: frozenset[str]) -> int | None:
    if not closed:
        first = scope.ends.first()
        return None if first is None else first[0]
    with contextlib.closing(scope.ends.ascending()) as entries:
        return next((until for until, epoch in entries if scope.grants[epoch].queue not in closed), None)


def _first_ready(scope: MessageScope, closed: frozenset[str]) -> int | None:
    if not closed:
        first = scope.ready.first()
        return None if first is None else first[0]
    with contextlib.closing(scope.ready.ascending()) as entries:
        return next((ready_at for ready_at, place in entries if place[0] not in closed), None)
