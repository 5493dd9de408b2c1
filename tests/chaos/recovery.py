"""The time between a fault and the recovery of all clients. Pure functions."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, takewhile

from history import Event, Fault, Publish, Receive

__all__ = ["BESIDE", "NO_FAULT", "times_to_recover"]

# What the same measurement says where nothing happened: how slow the machine is.
NO_FAULT = "no fault"
# Gateways are killed all the time, so also while something else is away: that says little about gateways.
BESIDE = "gateway killed, beside another fault"
_QUIET_BEFORE, _QUIET_AFTER = 3.0, 1.0


def times_to_recover(events: Iterable[Event]) -> Mapping[str, list[float]]:
    """By kind of fault, for each: seconds until the last of producers and groups had a success again.

    Only a request counts that began after the fault; for the last faults of a run there may be none.
    """
    successes: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    faults: list[Fault] = []
    for event in events:
        if isinstance(event, Fault):
            faults.append(event)
        elif isinstance(event, Publish) and any(result.outcome == "stored" for result in event.sent):
            successes["producers"].append((event.began, event.ended))
        elif isinstance(event, Receive) and event.messages:
            successes[event.group].append((event.began, event.ended))
    served = [_earliest_ends(seen) for seen in successes.values()]
    found: defaultdict[str, list[float]] = defaultdict(list)
    others = [fault for fault in faults if fault.kind != "gateway killed"]
    for kind, at in [*((_kind(fault, others), fault.began) for fault in faults), *_quiet(faults)]:
        ends = [ends[bisect_right(begins, at)] for begins, ends in served]
        if None not in ends:
            found[kind].append(max(end for end in ends if end is not None) - at)
    return found


def _kind(fault: Fault, others: Sequence[Fault]) -> str:
    is_beside = fault not in others and not _is_quiet(fault.began, others)
    return BESIDE if is_beside else fault.kind


def _is_quiet(at: float, faults: Iterable[Fault]) -> bool:
    return not any(fault.began - _QUIET_AFTER < at < fault.ended + _QUIET_BEFORE for fault in faults)


def _earliest_ends(seen: list[tuple[float, float]]) -> tuple[list[float], list[float | None]]:
    """Return start times in order, each with the earliest end of the requests that started then or later."""
    seen.sort()
    ends: list[float | None] = [None]
    for _, end in reversed(seen):
        ends.append(end if ends[-1] is None else min(end, ends[-1]))
    return [begin for begin, _ in seen], ends[::-1]


def _quiet(faults: Sequence[Fault]) -> Iterator[tuple[str, float]]:
    """Return instants without a fault nearby."""
    if not faults:
        return
    first, last = min(fault.began for fault in faults), max(fault.began for fault in faults)
    for at in takewhile(lambda at: at < last, count(first, 0.5)):
        if _is_quiet(at, faults):
            yield NO_FAULT, at
