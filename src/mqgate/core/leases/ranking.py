"""Names filed by a rank or a condition that changes often, such as queues by backlog or leases by their end."""

from collections.abc import Generator, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

__all__ = ["Ranking", "set_member"]

_N = TypeVar("_N")
_MIN_STALE = 64


class Ranking(Generic[_N]):
    """A heap of (rank, name) whose outdated entries are removed when they reach the top.

    The cost of a change does not depend on the number of names. Equal ranks are ordered by name.
    """

    __slots__ = ("_heap", "_ranks")

    def __init__(self) -> None:
        self._ranks: dict[_N, Any] = {}
        self._heap: list[tuple[Any, _N]] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, name: _N) -> bool:
        return name in self._ranks

    def __iter__(self) -> Iterator[_N]:
        return iter(self._ranks)

    def set(self, name: _N, rank: Any) -> None:
        if self._ranks.get(name) == rank:
            return
        self._ranks[name] = rank
        heap = self._heap
        heappush(heap, (rank, name))
        if len(heap) > 2 * len(self._ranks) + _MIN_STALE:
            self._heap = [(rank, name) for name, rank in self._ranks.items()]
            heapify(self._heap)

    def discard(self, name: _N) -> None:
        if self._ranks.pop(name, None) is not None and not self._ranks:
            self._heap.clear()

    def first(self) -> tuple[Any, _N] | None:
        """Return the lowest rank and its name."""
        heap, ranks = self._heap, self._ranks
        while heap:
            if ranks.get(heap[0][1]) == heap[0][0]:
                return heap[0]
            heappop(heap)
        return None

    def ascending(self) -> Generator[tuple[Any, _N]]:
        """Yield ranks and names in order. Close the iterator before the next change."""
        taken: list[tuple[Any, _N]] = []
        try:
            while (entry := self.first()) is not None:
                heappop(self._heap)
                # An outdated copy of the same entry must not be yielded again.
                while self._heap and self._heap[0] == entry:
                    heappop(self._heap)
                taken.append(entry)
                yield entry
        finally:
            for entry in taken:
                heappush(self._heap, entry)


def set_member(names: set[_N], name: _N, *, is_member: bool) -> None:
    """Add a name to a set, or remove it."""
    if is_member:
        names.add(name)
    else:
        names.discard(name)
