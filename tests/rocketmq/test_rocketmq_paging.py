"""The pulls for a range of a queue, against a simulated broker with random page sizes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.rocketmq.paging import DEFAULT_PULL_SIZE, Paging, PullRange


class Broker:
    """A queue whose messages are their own offsets. `page_size` returns the page size at an offset."""

    def __init__(self, end: int, page_size: Callable[[int], int]) -> None:
        self.end = end
        self.page_size = page_size
        self.pulls: list[PullRange] = []
        self.max_running = 0
        self.max_early = 0

    def respond(self, pull: PullRange) -> range:
        self.pulls.append(pull)
        count = min(pull.size, self.page_size(pull.offset), max(self.end - pull.offset, 0))
        return range(pull.offset, pull.offset + count)

    def read(self, paging: Paging[range], choose: Callable[[int], int] = lambda _: 0) -> list[int]:
        """Return all messages of a range. `choose` selects which of n running pulls completes next."""
        found: list[int] = []
        running: list[PullRange] = []
        received = 0
        while not paging.is_over:
            while (pull := paging.next_pull()) is not None:
                running.append(pull)
            self.max_running = max(self.max_running, len(running))
            pull = running.pop(choose(len(running)))
            items = self.respond(pull)
            paging.add_page(pull, items)
            received += len(items)
            for page in paging.take():
                found += page
            self.max_early = max(self.max_early, received - len(found))
        return found


@given(st.data(), st.integers(0, 5_000), st.integers(0, 600), st.integers(1, 6))
def test_every_message_is_returned_once_and_in_order(data: st.DataObject, start: int, length: int, ahead: int) -> None:
    """This holds for all page sizes and for all orders of responses."""
    sizes = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=20))
    broker = Broker(start + length, lambda offset: sizes[offset % len(sizes)])

    found = broker.read(
        Paging(start, start + length, ahead=ahead), lambda waiting: data.draw(st.integers(0, waiting - 1))
    )

    assert found == list(range(start, start + length))
    assert broker.max_running <= ahead


@given(st.data(), st.integers(0, 300), st.integers(1, 300), st.integers(1, 40))
def test_a_range_ends_where_nothing_is_found(data: st.DataObject, length: int, beyond: int, size: int) -> None:
    """Messages may be deleted before they are read. Only the messages before the gap are returned."""
    broker = Broker(length, lambda _: size)

    found = broker.read(Paging(0, length + beyond), lambda waiting: data.draw(st.integers(0, waiting - 1)))

    assert found == list(range(length))


@pytest.mark.parametrize("size", [1, 8, 32, 100])
def test_no_pull_is_wasted(size: int) -> None:
    """Concurrent pulls need at most a few more requests than sequential ones."""
    messages = 20 * size + 320
    broker = Broker(messages, lambda _: size)

    broker.read(Paging(0, messages))

    assert len(broker.pulls) <= messages / min(size, DEFAULT_PULL_SIZE) + 4


def test_larger_pages_are_requested_if_the_broker_returns_them() -> None:
    """An operator may raise the limit of the brokers for bulk reads."""
    broker = Broker(20_000, lambda _: 1_000)

    broker.read(Paging(0, 20_000))

    assert max(pull.size for pull in broker.pulls) > 500
    assert len(broker.pulls) < 20_000 / DEFAULT_PULL_SIZE / 4


def test_page_size_recovers_after_a_large_message() -> None:
    """A large message fills a response, but the messages after it are small."""
    broker = Broker(5_000, lambda offset: 1 if offset == 96 else 32)

    broker.read(Paging(0, 5_000))

    assert len(broker.pulls) < 1.5 * 5_000 / 32


def test_the_number_of_early_pages_is_limited() -> None:
    """One slow pull must not let the others fill the memory."""
    broker = Broker(100_000, lambda _: 32)
    last_first = broker.read(Paging(0, 100_000, ahead=4), lambda waiting: waiting - 1)

    assert len(last_first) == 100_000
    assert broker.max_early <= 8 * 2 * DEFAULT_PULL_SIZE


def test_an_empty_range_needs_no_pull() -> None:
    """Spark plans empty ranges for queues without new messages."""
    assert Paging(5, 5).is_over
    assert Paging(5, 3).is_over
    assert Paging(5, 5).next_pull() is None
