"""Steps that granted nothing, and are therefore not repeated for a short time.

Consumers that poll without a wait mostly find nothing while others hold all queues. A repeated step would find the same
until time passes or the lease state changes. A gateway knows its own changes. Of changes by other gateways it would
learn with the next step, so a result is reused for at most 50 ms.
"""

import time
from datetime import datetime
from typing import NamedTuple

from mqgate.core.acked_range import AckedRange
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import AcquireRequest, AcquireResult, ReceiveState, Verb

__all__ = ["EmptySteps", "GroupSteps", "may_free"]

_LIFETIME = 0.05
_MAX_GROUPS = 10_000


class _EmptyStep(NamedTuple):
    """The group and the closed queues of the request, until when the result may be returned again, and the result."""

    group: Group
    closed: frozenset[str]
    until: float
    result: AcquireResult


class GroupSteps:
    """The last empty step of a group."""

    def __init__(self) -> None:
        self._last: _EmptyStep | None = None

    def find(self, request: AcquireRequest) -> AcquireResult | None:
        """Return the result of the last step if the request carries nothing and would find the same."""
        step = self._last
        if step is None or request.settlements or request.bounds or request.wait or request.attempt is not None:
            return None
        is_same = request.group is step.group and request.closed == step.closed and time.monotonic() < step.until
        return step.result if is_same else None

    def add(self, request: AcquireRequest, acquired: AcquireResult, sent_at: float, now: datetime) -> None:
        """Keep a step if it changed nothing and found nothing until a time or an event that this gateway knows.

        `sent_at`: when it was sent, by time.monotonic(). `now`: the time of the clock that leases use.
        """
        group = request.group
        # A scope without a backlog is asked again: a message that another gateway redrives must be found at once.
        is_busy = acquired.state is ReceiveState.BUSY
        found_any = acquired.exhausted or acquired.lost or acquired.rewound or acquired.unknown_queues
        # Of a broadcast scope there is one consumer. In an ordered group, pulls decide which messages are ready.
        is_shared = group.mode is not Mode.BROADCAST and not group.is_ordered
        if not is_shared or not acquired.state_exists or not is_busy or found_any or acquired.is_span_full:
            return
        until = sent_at + _LIFETIME
        if acquired.next_at is not None:
            until = min(until, time.monotonic() + (acquired.next_at - now).total_seconds())
        self._last = _EmptyStep(group, request.closed, until, acquired._replace(settled=(), has_more=False))


class EmptySteps:
    """The empty steps of all groups."""

    def __init__(self) -> None:
        self._by_group: dict[str, GroupSteps] = {}

    def of(self, group: str) -> GroupSteps:
        """Return the empty steps of a group. A step that is sent now must be added to this result.

        If the state changes before its reply arrives, this result is forgotten, and to add to it has no effect.
        """
        steps = self._by_group.get(group)
        if steps is None:
            if len(self._by_group) >= _MAX_GROUPS:
                self._by_group.clear()
            steps = self._by_group[group] = GroupSteps()
        return steps

    def forget(self, group: str) -> None:
        """Reuse no step of a group that was sent before now: its state has changed."""
        self._by_group.pop(group, None)


def may_free(request: AcquireRequest, acquired: AcquireResult) -> bool:
    """Return whether other receives may be granted something because of the carried settlements."""
    settlements = request.settlements
    if not isinstance(settlements, AckedRange) and any(each.verb is not Verb.ACK for each in settlements):
        return True
    if request.group.mode is Mode.MESSAGE:
        # An ack makes no other message ready. Steps whose result depends on acks are not kept.
        return request.group.is_ordered
    # Otherwise the acked queue was leased again.
    return not acquired.grants or settlements[0].lease.queue != acquired.grants[0].lease.queue or len(settlements) > 1
