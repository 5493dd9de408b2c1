"""Where gateways' own telling has holes: batches that never came, rows that were dropped, ends without a goodbye.

What happened there is unknown. A reconciliation says so, and calls nothing lost that may merely not have been told.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from mqgate.stats.store import StatsStore

__all__ = ["Gap", "Told", "gaps", "last_words"]

# Rows are told a little after they happened: what the next batch would have held may be older than the one before.
_MARGIN_MS = 60_000


class Told(NamedTuple):
    """A batch of a gateway; `at` in ms is when it was stored. `is_told_so_far`: nothing had happened for a while."""

    gateway: str
    incarnation: str
    sequence: int
    at: int
    dropped: int
    is_last: bool
    is_told_so_far: bool = False


class Gap(NamedTuple):
    """From and to in ms; `reason` is one of these.

    lost (batches are missing), dropped (rows were given up), killed (no last batch), forgotten (by the topic's own
    retention), unreadable (a batch was put aside)
    """

    gateway: str
    since: int
    until: int
    reason: str


def gaps(batches: Iterable[Told], looked_at: int) -> list[Gap]:
    """The holes between batches and behind the last one of each incarnation; what came before the first is not seen.

    `looked_at`: what was done until then must have been told. A gateway at work tells something every second or so,
    and says so when it comes to rest: one that has told nothing since, and said neither that nor goodbye, was killed.
    """
    found = []
    by_incarnation: dict[tuple[str, str], dict[int, Told]] = {}
    for batch in batches:
        by_incarnation.setdefault(batch[:2], {})[batch.sequence] = batch
    # When each incarnation of a gateway began; several processes may serve under one name.
    births: dict[str, list[int]] = {}
    for (gateway, _), told in by_incarnation.items():
        births.setdefault(gateway, []).append(min(batch.at for batch in told.values()))
    for (gateway, _), told in by_incarnation.items():
        in_order = [told[sequence] for sequence in sorted(told)]
        first, last = in_order[0], in_order[-1]
        if first.sequence == 1 and first.dropped:
            found.append(Gap(gateway, first.at - _MARGIN_MS, first.at, "dropped"))
        for before, after in pairwise(in_order):
            if after.sequence != before.sequence + 1:
                found.append(Gap(gateway, before.at - _MARGIN_MS, after.at, "lost"))
            elif after.dropped > before.dropped:
                found.append(Gap(gateway, before.at - _MARGIN_MS, after.at, "dropped"))
        successors = [born for born in births[gateway] if born > last.at]
        is_silent = last.at <= looked_at and not last.is_told_so_far
        if not last.is_last and (successors or is_silent):
            # One that rested may have begun to work again at any time until it was started anew.
            until = min(successors) if last.is_told_so_far else last.at
            found.append(Gap(gateway, last.at - _MARGIN_MS, until + _MARGIN_MS, "killed"))
    return sorted(found)


def last_words(store: StatsStore) -> list[Told]:
    """The last batch of each incarnation that the tables know, but of those that had a successor already."""
    known = store.read("incarnations")
    births: dict[str, int] = {}
    for gateway, *_, born in known:
        births[gateway] = max(births.get(gateway, 0), born)
    return [
        # One without rows says that all is told.
        Told(gateway, incarnation, sequence, at, dropped, bool(is_last), is_told_so_far=not rows)
        for gateway, incarnation, sequence, at, dropped, is_last, rows, _ in known
        if births[gateway] <= at
    ]
