"""Offset ranges, without Spark."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.spark.log import Ends
from mqgate.spark.offset_ranges import OffsetRange, Positions, limit_end, plan_ranges, size, split_ranges

QUEUES = ("local:0", "local:1", "local:2")


def ends(**queues: tuple[int, int]) -> dict[str, dict[str, Ends]]:
    """Return the bounds of one topic. a, b and c are its queues."""
    return {"t": {QUEUES["abc".index(name)]: Ends(*pair) for name, pair in queues.items()}}


def at(**queues: int) -> Positions:
    return {"t": {QUEUES["abc".index(name)]: offset for name, offset in queues.items()}}


def test_a_range_includes_its_start_and_excludes_its_end() -> None:
    """Positions are next offsets, so consecutive batches neither repeat nor skip messages."""
    ranges, losses = plan_ranges(at(a=3, b=5), at(a=7, b=5), ends(a=(0, 9), b=(0, 5)))

    assert ranges == [OffsetRange("t", "local:0", 3, 7)]
    assert losses == []


def test_a_new_queue_is_read_from_its_beginning() -> None:
    """It was added while the query ran, so all its messages are new."""
    ranges, losses = plan_ranges(at(a=3), at(a=3, b=4), ends(a=(0, 3), b=(2, 9)))

    assert ranges == [OffsetRange("t", "local:1", 2, 4)]
    assert losses == []


def test_messages_deleted_by_retention_are_counted_as_a_loss() -> None:
    """Operators must know how many messages are missing."""
    ranges, losses = plan_ranges(at(a=3), at(a=20), ends(a=(10, 25)))

    assert ranges == [OffsetRange("t", "local:0", 10, 20)]
    assert [loss.lost for loss in losses] == [7]


def test_a_batch_may_be_deleted_completely() -> None:
    """Nothing is read, and all its messages are counted as a loss."""
    ranges, losses = plan_ranges(at(a=3), at(a=8), ends(a=(10, 25)))

    assert ranges == []
    assert [loss.lost for loss in losses] == [5]


def test_a_deleted_queue_is_a_loss() -> None:
    """A batch was planned for a queue that no longer exists."""
    ranges, losses = plan_ranges(at(a=3, b=1), at(a=3, b=4), ends(a=(0, 3)))

    assert ranges == []
    assert [(loss.queue, loss.lost) for loss in losses] == [("local:1", 3)]


def test_a_recreated_queue_is_read_from_its_beginning_and_reported() -> None:
    """It ends before the position, and its messages must not be skipped."""
    ranges, losses = plan_ranges(at(a=100), at(a=5), ends(a=(0, 5)))

    assert ranges == [OffsetRange("t", "local:0", 0, 5)]
    assert len(losses) == 1


def test_an_end_beyond_the_queue_is_a_loss() -> None:
    """A batch is repeated after the topic was recreated with fewer messages."""
    ranges, losses = plan_ranges(at(a=2), at(a=9), ends(a=(0, 4)))

    assert ranges == [OffsetRange("t", "local:0", 2, 4)]
    assert [loss.lost for loss in losses] == [5]


def test_a_limit_above_the_backlog_changes_nothing() -> None:
    """The batch then reads all messages."""
    end = at(a=5, b=9)

    assert limit_end(at(a=0, b=0), end, ends(a=(0, 5), b=(0, 9)), 14) == end


def test_a_limit_is_distributed_by_backlog() -> None:
    """Longer queues get more, so that all queues catch up at the same time."""
    end = limit_end(at(a=0, b=0), at(a=900, b=100), ends(a=(0, 900), b=(0, 100)), 100)

    assert sum(end["t"].values()) == 100
    assert 85 <= end["t"]["local:0"] <= 95


def test_a_short_queue_does_not_wait_for_a_long_one() -> None:
    """One message next to a million is in the first batch."""
    end = limit_end(at(a=0, b=0), at(a=1_000_000, b=1), ends(a=(0, 1_000_000), b=(0, 1)), 10)

    assert end == at(a=9, b=1)


def test_a_limit_below_the_number_of_queues_leaves_new_ones_out() -> None:
    """A new queue that is not read yet must not enter the checkpoint at its end."""
    end = limit_end(at(a=0), at(a=5, b=5, c=5), ends(a=(0, 5), b=(0, 5), c=(0, 5)), 1)

    assert end == at(a=1)


POSITIONS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 50), min_size=1)


@given(POSITIONS, st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 60), min_size=1), st.integers(1, 40))
def test_limited_batches_read_everything_once_and_in_order(
    begin: dict[str, int], tops: dict[str, int], most: int
) -> None:
    """For any limit, the batches end where one batch would end, and none exceeds the limit."""
    there = {"t": {queue: Ends(0, top) for queue, top in tops.items()}}
    start = {"t": {queue: min(offset, tops.get(queue, offset)) for queue, offset in begin.items()}}
    target = {"t": start["t"] | tops}
    whole = size(start, target, there)
    read: list[OffsetRange] = []
    for _ in range(whole + 1):
        end = limit_end(start, target, there, most)
        ranges, losses = plan_ranges(start, end, there)
        assert losses == []
        assert sum(offsets.size for offsets in ranges) <= most
        read += ranges
        start = end

    assert start == target
    assert sum(offsets.size for offsets in read) == whole
    for queue in tops:
        own = [message for message in read if message.queue == queue]
        assert all(before.end == after.start for before, after in pairwise(own))


def test_each_queue_is_one_task_by_default() -> None:
    """This is the behaviour of the sources of Spark."""
    ranges = [OffsetRange("t", "local:0", 0, 5), OffsetRange("t", "local:1", 3, 4)]

    assert split_ranges(ranges) == [[ranges[0]], [ranges[1]]]


def test_no_ranges_give_no_tasks() -> None:
    """This holds with a minimum number of tasks too."""
    assert split_ranges([], min_tasks=4) == []


def test_long_queues_are_split_to_reach_the_minimum() -> None:
    """They are split in proportion to their length, without a gap."""
    tasks = split_ranges([OffsetRange("t", "local:0", 0, 90), OffsetRange("t", "local:1", 0, 10)], min_tasks=10)

    assert len(tasks) >= 10
    assert max(piece.size for task in tasks for piece in task) <= 10


def test_small_queues_share_tasks() -> None:
    """A task costs more than reading a hundred messages."""
    tasks = split_ranges([OffsetRange("t", f"local:{number}", 0, 10) for number in range(16)], max_tasks=4)

    assert [sum(piece.size for piece in task) for task in tasks] == [40] * 4


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 300)), min_size=1, max_size=6),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 50),
)
def test_tasks_cover_the_ranges_exactly(
    spans: list[tuple[int, int]], min_tasks: int | None, max_tasks: int | None, max_rows: int | None
) -> None:
    """Every message is in exactly one task, and the limits hold."""
    ranges = [
        OffsetRange("t", f"local:{number}", start, start + length) for number, (start, length) in enumerate(spans)
    ]

    tasks = split_ranges(ranges, min_tasks=min_tasks, max_tasks=max_tasks, max_rows=max_rows)

    pieces = [piece for task in tasks for piece in task]
    covered = [(piece.queue, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert sorted(covered) == sorted(
        (offsets.queue, offset) for offsets in ranges for offset in range(offsets.start, offsets.end)
    )
    assert max_tasks is None or len(tasks) <= max_tasks
    assert max_rows is None or all(piece.size <= max_rows for piece in pieces)
    if min_tasks is not None and max_tasks is None:
        assert len(tasks) >= min(min_tasks, len(covered))
    assert all(tasks), "no task is empty"


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_limit_of_a_few_messages_makes_progress(most: int) -> None:
    """Three queues of one message each: no batch is empty, however small the limit."""
    start, target, there = at(a=0, b=0, c=0), at(a=1, b=1, c=1), ends(a=(0, 1), b=(0, 1), c=(0, 1))

    assert size(start, limit_end(start, target, there, most), there) == most
