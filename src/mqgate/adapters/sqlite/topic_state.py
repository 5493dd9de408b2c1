"""What the event loop knows of topics and queues, without I/O. It is updated after each commit."""

from collections.abc import Iterator

from mqgate.adapters.sqlite.hot_tail import QueueTail
from mqgate.core.lease import QueueBounds

__all__ = ["QueueState", "TopicState"]


class QueueState:
    """The number of a queue in the database, its bounds as of the last commit, and its newest messages.

    `version` is the version of the log at which the queue changed last.
    """

    __slots__ = ("bounds", "last_append_ms", "name", "number", "tail", "version")

    def __init__(self, queue_id: int, number: int, bounds: QueueBounds, version: int, last_append_ms: int = 0) -> None:
        self.name = f"local:{queue_id}"
        self.number = number
        self.bounds = bounds
        self.version = version
        self.last_append_ms = last_append_ms
        self.tail = QueueTail(bounds.max)


class TopicState:
    """The queues of a topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[QueueState] = []
        self.by_name: dict[str, QueueState] = {}
        # In the order of their last changes.
        self._changed: dict[str, QueueState] = {}
        self._next_slot = 0

    def add(self, queue: QueueState) -> None:
        self.queues.append(queue)
        self.by_name[queue.name] = queue
        self._changed[queue.name] = queue

    def mark_changed(self, queue: QueueState, version: int) -> None:
        queue.version = version
        del self._changed[queue.name]
        self._changed[queue.name] = queue

    def changed_since(self, version: int) -> Iterator[QueueState]:
        """Yield the queues that changed after a version. The cost does not depend on the other queues."""
        for queue in reversed(self._changed.values()):
            if queue.version <= version:
                return
            yield queue

    def select(self, slot: int | None) -> QueueState:
        """Return the queue of a slot. Without a slot, the queues take turns. Called by the writing thread."""
        if slot is None:
            slot = self._next_slot
            self._next_slot += 1
        return self.queues[slot % len(self.queues)]
