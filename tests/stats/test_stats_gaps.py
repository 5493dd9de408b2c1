"""Gaps in the events of gateways."""

import pytest

from mqgate.stats.gaps import EventBatch, Gap, gaps, last_batches
from mqgate.stats.store import StatsStore

NOON_MS = 1_794_830_400_000
MINUTE = 60_000
LATER = NOON_MS + 60 * MINUTE


def batch(sequence: int, *, dropped: int = 0, is_last: bool = False, incarnation: str = "i-1") -> EventBatch:
    return EventBatch("gw-1", incarnation, sequence, NOON_MS + sequence * 1000, dropped, is_last)


def test_complete_batches_with_a_last_batch_have_no_gap() -> None:
    """Batches may arrive in any order and more than once."""
    assert gaps([batch(2), batch(1), batch(2), batch(3, is_last=True)], LATER) == []


def test_a_gateway_that_still_writes_has_no_gap() -> None:
    """A running gateway has no last batch, but it wrote a batch after the positions were read."""
    assert gaps([batch(1), batch(2)], NOON_MS + 1500) == []


def test_a_gateway_that_stopped_writing_has_a_gap() -> None:
    """All events until the positions were read must be written, and an idle gateway writes an idle batch."""
    assert [gap.reason for gap in gaps([batch(1), batch(2)], NOON_MS + 3000)] == ["killed"]


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([batch(1), batch(3), batch(4, is_last=True)], "lost"),
        ([batch(1), batch(2, dropped=7), batch(3, dropped=7, is_last=True)], "dropped"),
        ([batch(1, dropped=7), batch(2, dropped=7, is_last=True)], "dropped"),
        ([batch(1), batch(2)], "killed"),
    ],
)
def test_a_gap_has_a_reason_and_a_period(batches: list[EventBatch], reason: str) -> None:
    """Without gaps, a reconciliation would report unwritten settlements as missing messages."""
    (gap,) = gaps(batches, LATER)

    assert isinstance(gap, Gap)
    assert (gap.gateway, gap.reason) == ("gw-1", reason)
    assert gap.since < NOON_MS + 1000 <= gap.until


def test_a_restart_without_a_last_batch_means_killed() -> None:
    """A reconciliation right after a crash must not report unwritten settlements as missing."""
    back = EventBatch("gw-1", "i-2", 1, NOON_MS + 5000, 0, is_last=False)

    assert [gap.reason for gap in gaps([batch(1), back], NOON_MS + 4000)] == ["killed"]


def idle_batch(sequence: int) -> EventBatch:
    return batch(sequence)._replace(is_idle=True)


def test_an_idle_gateway_has_no_gap() -> None:
    """An idle night must not hide a message that is really lost."""
    assert gaps([batch(1), idle_batch(2)], LATER) == []


def test_a_gateway_killed_while_idle_has_a_gap_until_its_restart() -> None:
    """It may have become busy at any time between its idle batch and the restart."""
    back = EventBatch("gw-1", "i-2", 1, LATER, 0, is_last=False)

    (gap,) = gaps([batch(1), idle_batch(2), back], LATER - 1000)

    assert (gap.reason, gap.until >= LATER) == ("killed", True)


def test_each_incarnation_has_its_own_sequence() -> None:
    """A restarted gateway numbers its batches from 1."""
    batches = [batch(1), batch(2, is_last=True), batch(1, incarnation="i-2"), batch(2, incarnation="i-2", is_last=True)]

    assert gaps(batches, LATER) == []


def test_the_store_returns_the_last_batch_of_each_incarnation(store: StatsStore) -> None:
    """An idle gateway may be killed before its next batch, so the age of its last batch does not matter."""
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
