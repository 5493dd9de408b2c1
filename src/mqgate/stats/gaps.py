"""Gaps in the events of a gateway: missing batches, dropped rows, and incarnations without a last batch.

It is unknown what happened during a gap. A reconciliation reports `unknown` there instead of `missing`.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from mqgate.stats.store import StatsStore

__all__ = ["EventBatch", "Gap", "gaps", "last_batches"]

# Events are written with a delay, so a missing batch may contain events older than the batch before it.
_MARGIN_MS = 60_000


class EventBatch(NamedTuple):
    """An event batch of a gateway. `at` is its store time in ms. `is_idle`: the gateway had no events for a while."""

    gateway: str
    incarnation: str
    sequence: int
    at: int
    dropped: int
    is_last: bool
    is_idle: bool = False


class Gap(NamedTuple):
    """A period, in ms, whose events are incomplete. `reason` is one of these.

    lost (batches are missing), dropped (the gateway discarded rows), killed (no last batch), forgotten (deleted by the
    retention of the events topic), unreadable (a batch was quarantined)
    """

    gateway: str
    since: int
    until: int
    reason: str


def gaps(batches: Iterable[EventBatch], observed_at: int) -> list[Gap]:
    """Return the gaps between batches and after the last batch of each incarnation.

    Gaps before the first batch are not detected. Events up to `observed_at` must have been written. A busy gateway
    writes a batch about every second, an idle one writes an idle batch, and one that stops writes a last batch. A
    gateway without any of these since then was killed.
    """
    found = []
    by_incarnation: dict[tuple[str, str], dict[int, EventBatch]] = {}
    for batch in batches:
        by_incarnation.setdefault(batch[:2], {})[batch.sequence] = batch
    # Several processes may use the same gateway name.
    started: dict[str, list[int]] = {}
    for (gateway, _), by_sequence in by_incarnation.items():
        started.setdefault(gateway, []).append(min(batch.at for batch in by_sequence.values()))
    for (gateway, _), by_sequence in by_incarnation.items():
        in_order = [by_sequence[sequence] for sequence in sorted(by_sequence)]
        first, last = in_order[0], in_order[-1]
        if first.sequence == 1 and first.dropped:
            found.append(Gap(gateway, first.at - _MARGIN_MS, first.at, "dropped"))
        for before, after in pairwise(in_order):
            if after.sequence != before.sequence + 1:
                found.append(Gap(gateway, before.at - _MARGIN_MS, after.at, "lost"))
            elif after.dropped > before.dropped:
                found.append(Gap(gateway, before.at - _MARGIN_MS, after.at, "dropped"))
        successors = [started_at for started_at in started[gateway] if started_at > last.at]
        is_silent = last.at <= observed_at and not last.is_idle
        if not last.is_last and (successors or is_silent):
            # An idle gateway may have become busy at any time before it was restarted.
            until = min(successors) if last.is_idle else last.at
            found.append(Gap(gateway, last.at - _MARGIN_MS, until + _MARGIN_MS, "killed"))
    return sorted(found)


def last_batches(store: StatsStore) -> list[EventBatch]:
    """Return the last stored batch of each incarnation, except of incarnations that already have a successor."""
    known = store.read("incarnations")
    started: dict[str, int] = {}
    for gateway, *_, started_at in known:
        started[gateway] = max(started.get(gateway, 0), started_at)
    return [
        # A batch without rows is an idle batch or a last batch.
        EventBatch(gateway, incarnation, sequence, at, dropped, bool(is_last), is_idle=not rows)
        for gateway, incarnation, sequence, at, dropped, is_last, rows, _ in known
        if started[gateway] <= at
    ]
