"""Where gateways' own telling has holes: batches that never came, rows that were dropped, ends without a goodbye.

What happened there is unknown. A reconciliation says so, and calls nothing lost that may merely not have been told.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from mqgate.core.message import milliseconds
from mqgate.stats.store import StatsStore

__all__ = ["Gap", "gaps", "gaps_of"]

# So long after its last batch a gateway counts as gone; one that lives tells something (lag, polls) every few seconds.
_SILENCE = timedelta(minutes=2)
# Rows are told a little after they happened; a batch before the hole may have waited to be sent.
_MARGIN_MS = 60_000


class Gap(NamedTuple):
    """From and to in ms; `reason`: lost (batches missing), dropped (rows given up) or killed (no last batch)."""

    gateway: str
    incarnation: str
    since: int
    until: int
    reason: str


def gaps(store: StatsStore, since: datetime, now: datetime) -> list[Gap]:
    """The holes since an instant. Look back far enough: an incarnation's first batch has no predecessor."""
    return gaps_of(store.read("event_batches_since", milliseconds(since)), milliseconds(now))


def gaps_of(rows: Iterable[tuple[Any, ...]], now: int) -> list[Gap]:
    found = []
    for gateway, incarnation, sequence, at, dropped, is_last, before, at_before, dropped_before, after in rows:
        whose = (gateway, incarnation)
        # Without a predecessor in sight: either it is the first one, or the ones before are forgotten.
        if before is not None and sequence != before + 1:
            found.append(Gap(*whose, at_before - _MARGIN_MS, at, "lost"))
        if before is not None and dropped > dropped_before:
            found.append(Gap(*whose, at_before - _MARGIN_MS, at, "dropped"))
        if after is None and not is_last and now - at > _SILENCE / timedelta(milliseconds=1):
            # It may have gone on for a while after what it told last.
            found.append(Gap(*whose, at - _MARGIN_MS, at + _MARGIN_MS, "killed"))
    return found
