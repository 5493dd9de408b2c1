"""Which pulls are sent for a range: against a queue whose pages are as large as chance has it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.rocketmq.paging import DEFAULT_PULL_SIZE, Paging, PullRange


class Broker:
    """A queue that holds its own offsets, answered in any order and so many at a time."""

    def __init__(self, end: int, most: Callable[[int], int]) -> None:
        self.end = end
        self.most = most
        self.pulls: list[PullRange] = []
        self.most_at_once = 0
        self.most_waiting = 0

    def answer(self, ask: PullRange) -> range:
        self.pulls.append(ask)
        count = min(ask.size, self.most(ask.offset), max(self.end - ask.offset, 0))
        return range(ask.offset, ask.offset + count)

    def read(self, paging: Paging[range], choose: Callable[[int], int] = lambda _: 0) -> list[int]:
        """All that a range gives; `choose` says which of so many pulls is answered next."""
        found: list[int] = []
        under_way: list[PullRange] = []
        answered = 0
        while not paging.is_over:
            while (ask := paging.next_pull()) is not None:
                under_way.append(ask)
            self.most_at_once = max(self.most_at_once, len(under_way))
            ask = under_way.pop(choose(len(under_way)))
            items = self.answer(ask)
            paging.add_page(ask, items)
            answered += len(items)
            for page in paging.take():
                found += page
            self.most_waiting = max(self.most_waiting, answered - len(found))
        return found


@given(st.data(), st.integers(0, 5_000), st.integers(0, 600), st.integers(1, 6))
def test_every_message_comes_once_and_in_order(data: st.DataObject, start: int, length: int, ahead: int) -> None:
    """However many messages each pull gives, and whichever is answered first."""
    sizes = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=20))
    broker = Broker(start + length, lambda offset: sizes[offset % len(sizes)])

    found = broker.read(
        Paging(start, start + length, ahead=ahead), lambda waiting: data.draw(st.integers(0, waiting - 1))
    )

    assert found == list(range(start, start + length))
    assert broker.most_at_once <= ahead


@given(st.data(), st.integers(0, 300), st.integers(1, 300), st.integers(1, 40))
def test_a_range_ends_where_nothing_is_found(data: st.DataObject, length: int, beyond: int, size: int) -> None:
    """Messages may be gone before they were read: what lies before them is handed out, what lies behind is not."""
    broker = Broker(length, lambda _: size)

    found = broker.read(Paging(0, length + beyond), lambda waiting: data.draw(st.integers(0, waiting - 1)))

    assert found == list(range(length))


@pytest.mark.parametrize("size", [1, 8, 32, 100])
def test_no_pull_is_wasted(size: int) -> None:
    """A broker that gives so many is asked no oftener than one pull after the other would ask, but for a few."""
    messages = 20 * size + 320
    broker = Broker(messages, lambda _: size)

    broker.read(Paging(0, messages))

    assert len(broker.pulls) <= messages / min(size, DEFAULT_PULL_SIZE) + 4


def test_a_broker_that_gives_more_is_asked_for_more() -> None:
    """An operator who raises the limit for bulk readers is heeded."""
    broker = Broker(20_000, lambda _: 1_000)

    broker.read(Paging(0, 20_000))

    assert max(ask.size for ask in broker.pulls) > 500
    assert len(broker.pulls) < 20_000 / DEFAULT_PULL_SIZE / 4


def test_one_large_message_does_not_make_small_pages_for_ever() -> None:
    """It fills an answer by itself; those behind it are small again."""
    broker = Broker(5_000, lambda offset: 1 if offset == 96 else 32)

    broker.read(Paging(0, 5_000))

    assert len(broker.pulls) < 1.5 * 5_000 / 32


def test_what_comes_too_early_is_not_piled_up() -> None:
    """One pull that hangs must not let the others fill the memory."""
    broker = Broker(100_000, lambda _: 32)
    last_first = broker.read(Paging(0, 100_000, ahead=4), lambda waiting: waiting - 1)

    assert len(last_first) == 100_000
    assert broker.most_waiting <= 8 * 2 * DEFAULT_PULL_SIZE


def test_an_empty_range_asks_nothing() -> None:
    """Spark plans empty ranges for queues without news."""
    assert Paging(5, 5).is_over
    assert Paging(5, 3).is_over
    assert Paging(5, 5).next_pull() is None
