"""Consecutive messages of one queue, as columns."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, overload

from mqgate.core.message import Message

__all__ = ["MessagePage"]


class MessagePage(Sequence[Message]):
    """Messages of one queue in offset order. A message is created only for a reader that needs it.

    A response and the events of a delivery are made from the columns. `sizes` are those of the bodies.
    """

    __slots__ = ("_columns", "bodies", "ids", "keys", "offsets", "properties", "queue", "sizes", "stored_ms", "topic")

    def __init__(self, topic: str, queue: str, *columns: Sequence[Any]) -> None:
        """Create a page. The columns are the members of Message after its topic and queue, and the ids before them."""
        self.topic = topic
        self.queue = queue
        self._columns = columns
        self.ids, self.offsets, self.bodies, self.keys, _, self.properties, self.stored_ms = columns
        self.sizes = list(map(len, self.bodies))

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "MessagePage":
        """Return messages of one queue as a page."""
        if isinstance(messages, MessagePage):
            return messages
        if not messages:
            return cls("", "", *((),) * 7)
        ids, topics, queues, *columns = zip(*messages, strict=True)
        return cls(topics[0], queues[0], ids, *columns)

    @property
    def tags(self) -> Sequence[str | None]:
        tags: Sequence[str | None] = self._columns[4]
        return tags

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Message]:
        ids, *others = self._columns
        rows = zip(ids, repeat(self.topic), repeat(self.queue), *others)
        return map(tuple.__new__, repeat(Message), rows)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> "MessagePage": ...

    def __getitem__(self, index: int | slice) -> "Message | MessagePage":
        columns: list[Any] = [column[index] for column in self._columns]
        if isinstance(index, slice):
            return MessagePage(self.topic, self.queue, *columns)
        return Message(columns[0], self.topic, self.queue, *columns[1:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        raise TypeError("a page is compared by its messages")
