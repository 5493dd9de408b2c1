"""Which pulls to send for a range of a queue, several at once. Pure: who calls does the sending.

A pull at a time leaves a reader idle for as long as the broker answers. But a pull's answer tells where the next one
begins, and how many messages it holds depends on the broker: 32 of those in memory, 8 of those on disk, fewer of large
ones, more where an operator said so. So the places of the next pulls are guessed from the last answer:

- A page is asked for where the last one should end. If the answer is short, the gap behind it is asked for first.
- A short answer tells how much the broker gives; some full ones in a row, that it may give more. To ask for twice as
  much costs nothing: what is missing then is a page of its own.
- Pages are handed out in order, each message once; those that came too early wait, and not many of them.
"""

from typing import Any, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["DEFAULT_PULL_SIZE", "Page", "Paging", "PullRange"]

# What a broker answers at once, unless it is told otherwise.
DEFAULT_PULL_SIZE = 32
_MAX_AT_ONCE = 1_024
# So many full pages in a row, and a larger one is tried.
_STREAK = 8


class Page(Protocol):
    """Messages, however they are kept: a list of them is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


_Page = TypeVar("_Page", bound=Page)


class PullRange(NamedTuple):
    """A pull to send."""

    offset: int
    max_count: int

    @property
    def end(self) -> int:
        return self.offset + self.max_count


class Paging(Generic[_Page]):
    """The range [start, end) of a queue; `ahead`: so many pulls under way, and at most so many pages waiting."""

    def __init__(self, start: int, end: int, *, ahead: int = 4, size: int = DEFAULT_PULL_SIZE) -> None:
        self._at = start
        self._end = max(start, end)
        self.ahead = ahead
        self._size = size
        self._streak = 0
        # What was not asked for yet: gaps, and behind the last of them everything else. In order.
        self._open = [(start, self._end)] if start < self._end else []
        self._asked: set[PullRange] = set()
        self._early: dict[int, _Page] = {}

    @property
    def is_over(self) -> bool:
        """Whether all was handed out."""
        return self._at >= self._end

    def ask(self) -> PullRange | None:
        """The next pull to send now; None: not before an answer has come."""
        if not self._open or len(self._asked) >= self.ahead:
            return None
        low, high = self._open[0]
        # The first page is always asked for: without it those that wait would wait for ever.
        if len(self._early) >= self.ahead and low > self._at:
            return None
        ask = PullRange(low, min(self._size, high - low))
        self._asked.add(ask)
        self._open[:1] = [(ask.end, high)] if ask.end < high else []
        return ask

    def answer(self, ask: PullRange, page: _Page) -> None:
        """What a pull gave: consecutive messages from its offset on, or none: there the range ends."""
        self._asked.remove(ask)
        count = min(len(page), ask.max_count)
        if not count:
            self._stop(ask.offset)
            return
        if ask.offset < self._end:
            self._early[ask.offset] = page if count == len(page) else page[:count]
        if count == ask.max_count:
            self._is_full(ask)
            return
        self._streak = 0
        self._size = min(self._size, count)
        if ask.offset + count < self._end:
            self._open.append((ask.offset + count, min(ask.end, self._end)))
            self._open.sort()

    def _is_full(self, ask: PullRange) -> None:
        # The rest of a gap, or of the range, tells nothing.
        if ask.max_count >= self._size:
            self._streak += 1
            if self._streak >= _STREAK:
                self._streak = 0
                self._size = min(2 * self._size, _MAX_AT_ONCE)

    def _stop(self, end: int) -> None:
        """Nothing is found at an offset, so nothing behind it is wanted."""
        self._end = min(self._end, end)
        self._open = [(low, min(high, end)) for low, high in self._open if low < end]
        self._early = {offset: page for offset, page in self._early.items() if offset < end}

    def take(self) -> list[_Page]:
        """The pages that follow what was handed out."""
        pages: list[_Page] = []
        while (page := self._early.pop(self._at, None)) is not None:
            pages.append(page)
            self._at += len(page)
        return pages
