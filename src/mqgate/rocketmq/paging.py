"""Plans the concurrent pulls that read a range of a queue. Pure: the caller sends the pulls.

With one pull at a time a reader is idle while the broker works. But only the response to a pull shows where the next
one starts, and the number of messages in it depends on the broker: 32 from memory, 8 from disk, fewer large ones, more
if an operator has configured it. The offsets of the next pulls are therefore estimated from the last response:

- A page is requested where the previous one should end. If that response is short, the gap after it is requested first.
- A short response shows how many messages the broker returns. After several full ones in a row, twice as many are
  requested. That costs nothing: messages that are missing then are another page.
- Pages are returned in order, each message once. A limited number of early pages is kept.
"""

from typing import Any, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["DEFAULT_PULL_SIZE", "Page", "Paging", "PullRange"]

# The default maximum of a broker.
DEFAULT_PULL_SIZE = 32
_MAX_PULL_SIZE = 1_024
# After this many full pages in a row the size is doubled.
_STREAK = 8


class Page(Protocol):
    """A sequence of messages, for example a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


_Page = TypeVar("_Page", bound=Page)


class PullRange(NamedTuple):
    """The range [offset, offset + size) that one pull requests."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class Paging(Generic[_Page]):
    """The plan for the range [start, end) of a queue, with at most `ahead` running pulls and `ahead` early pages."""

    def __init__(self, start: int, end: int, *, ahead: int = 4, size: int = DEFAULT_PULL_SIZE) -> None:
        self._next = start
        self._end = max(start, end)
        self.ahead = ahead
        self._size = size
        self._streak = 0
        # The ranges that were not requested yet, in order: gaps, and the rest of the range.
        self._open = [(start, self._end)] if start < self._end else []
        self._running: set[PullRange] = set()
        self._early: dict[int, _Page] = {}

    @property
    def is_over(self) -> bool:
        """Return whether all pages were returned."""
        return self._next >= self._end

    def next_pull(self) -> PullRange | None:
        """Return the next pull to send, or None if a response has to arrive first."""
        if not self._open or len(self._running) >= self.ahead:
            return None
        low, high = self._open[0]
        # The next page in order is always requested: the early pages wait for it.
        if len(self._early) >= self.ahead and low > self._next:
            return None
        pull = PullRange(low, min(self._size, high - low))
        self._running.add(pull)
        self._open[:1] = [(pull.end, high)] if pull.end < high else []
        return pull

    def add_page(self, pull: PullRange, page: _Page) -> None:
        """Add the result of a pull: consecutive messages from its offset, or none, which ends the range there."""
        self._running.remove(pull)
        count = min(len(page), pull.size)
        if not count:
            self._stop(pull.offset)
            return
        if pull.offset < self._end:
            self._early[pull.offset] = page if count == len(page) else page[:count]
        if count == pull.size:
            self._count_full(pull)
            return
        self._streak = 0
        self._size = min(self._size, count)
        if pull.offset + count < self._end:
            self._open.append((pull.offset + count, min(pull.end, self._end)))
            self._open.sort()

    def _count_full(self, pull: PullRange) -> None:
        # A smaller pull, for the rest of a gap or of the range, shows nothing.
        if pull.size >= self._size:
            self._streak += 1
            if self._streak >= _STREAK:
                self._streak = 0
                self._size = min(2 * self._size, _MAX_PULL_SIZE)

    def _stop(self, end: int) -> None:
        """End the range at an offset where no message was found."""
        self._end = min(self._end, end)
        self._open = [(low, min(high, end)) for low, high in self._open if low < end]
        self._early = {offset: page for offset, page in self._early.items() if offset < end}

    def take(self) -> list[_Page]:
        """Return the pages that follow the pages returned before."""
        pages: list[_Page] = []
        while (page := self._early.pop(self._next, None)) is not None:
            pages.append(page)
            self._next += len(page)
        return pages
