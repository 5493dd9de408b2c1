"""Where gateways' telling has holes."""

import pytest

from mqgate.stats.gaps import EventBatch, Gap, gaps, last_batches
from mqgate.stats.store import StatsStore

NOON_MS = 1_794_830_400_000
MINUTE = 60_000
LATER = NOON_MS + 60 * MINUTE


def told(sequence: int, *, dropped: int = 0, is_last: bool = False, incarnation: str = "i-1") -> EventBatch:
    return EventBatch("gw-1", incarnation, sequence, NOON_MS + sequence * 1000, dropped, is_last)


def test_a_gateway_that_told_all_and_said_goodbye_has_no_hole() -> None:
    """Also when its batches came in any order, and one of them twice."""
    assert gaps([told(2), told(1), told(2), told(3, is_last=True)], LATER) == []


def test_a_gateway_that_still_tells_has_no_hole() -> None:
    """It has not said goodbye because it lives: it told something after the groups were looked at."""
    assert gaps([told(1), told(2)], NOON_MS + 1500) == []


def test_a_gateway_that_fell_silent_a_moment_ago_has_a_hole() -> None:
    """Whatever was done until the groups were looked at must have been told since; a rest would have been."""
    assert [gap.reason for gap in gaps([told(1), told(2)], NOON_MS + 3000)] == ["killed"]


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([told(1), told(3), told(4, is_last=True)], "lost"),
        ([told(1), told(2, dropped=7), told(3, dropped=7, is_last=True)], "dropped"),
        ([told(1, dropped=7), told(2, dropped=7, is_last=True)], "dropped"),
        ([told(1), told(2)], "killed"),
    ],
)
def test_a_hole_says_why_and_when(batches: list[EventBatch], reason: str) -> None:
    """A reconciliation that knows of none would call lost what was merely not told."""
    (gap,) = gaps(batches, LATER)

    assert isinstance(gap, Gap)
    assert (gap.gateway, gap.reason) == ("gw-1", reason)
    assert gap.since < NOON_MS + 1000 <= gap.until


def test_a_gateway_that_came_back_without_a_goodbye_was_killed() -> None:
    """Known at once, so that a proof right after the crash does not call lost what it had no time to tell."""
    back = EventBatch("gw-1", "i-2", 1, NOON_MS + 5000, 0, is_last=False)

    assert [gap.reason for gap in gaps([told(1), back], NOON_MS + 4000)] == ["killed"]


def at_rest(sequence: int) -> EventBatch:
    return told(sequence)._replace(is_idle=True)


def test_a_gateway_that_said_it_rests_has_no_hole() -> None:
    """At night nothing happens for hours: a loss that is found then must not be excused by that."""
    assert gaps([told(1), at_rest(2)], LATER) == []


def test_a_gateway_that_was_killed_at_rest_may_have_done_something_last() -> None:
    """From its last word until it came back, nobody knows."""
    back = EventBatch("gw-1", "i-2", 1, LATER, 0, is_last=False)

    (gap,) = gaps([told(1), at_rest(2), back], LATER - 1000)

    assert (gap.reason, gap.until >= LATER) == ("killed", True)


def test_each_incarnation_counts_for_itself() -> None:
    """A gateway that was started again counts from 1."""
    batches = [told(1), told(2, is_last=True), told(1, incarnation="i-2"), told(2, incarnation="i-2", is_last=True)]

    assert gaps(batches, LATER) == []


def test_the_tables_know_a_gateways_last_word(store: StatsStore) -> None:
    """However long ago: one that rested for a night may be killed before it says another. Not who has a successor."""
    batches = [
        ("gw-1", "i-1", 1, NOON_MS, 5, 0, 0),
        ("gw-1", "i-2", 1, NOON_MS + 1000, 5, 0, 0),
        ("gw-1", "i-2", 2, NOON_MS + 2000, 0, 3, 0),
        ("gw-2", "i-3", 9, NOON_MS, 5, 0, 0),
        ("gw-3", "i-4", 1, NOON_MS, 0, 0, 1),
    ]
    store.put({"event_batches": batches})

    assert sorted(last_batches(store)) == [
        EventBatch("gw-1", "i-2", 2, NOON_MS + 2000, 3, is_last=False, is_idle=True),
        EventBatch("gw-2", "i-3", 9, NOON_MS, 0, is_last=False),
        EventBatch("gw-3", "i-4", 1, NOON_MS, 0, is_last=True, is_idle=True),
    ]
