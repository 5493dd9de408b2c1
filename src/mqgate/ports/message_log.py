"""Where messages lie: topics of queues, each an append-only log with dense offsets."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from mqgate.core.lease import Head
from mqgate.core.message import Draft, Message, Stored


class Heads(NamedTuple):
    """Ends of queues as of a version; a later question `since` that version brings only what changed."""

    version: int
    queues: Mapping[str, Head]


class MessageLog(Protocol):
    """A log. Unknown topics raise TopicNotFound, unknown queues QueueNotFound."""

    async def create(self, topic: str, queues: int) -> None:
        """Make a topic, or give it more queues; never fewer. Repeating it changes nothing."""

    async def drop(self, topic: str) -> None:
        """Remove a topic and all its messages. A topic that is not there is no error."""

    async def append(self, topic: str, drafts: Sequence[Draft]) -> Sequence[Stored]:
        """Store messages in the given order, durably, all or none of one call per queue's own guarantees."""

    async def read(self, topic: str, queue: str, offset: int, most: int, most_bytes: int) -> Sequence[Message]:
        """Consecutive messages from an offset: at most so many, at least one if there is one there.

        Reading below the first kept offset gives nothing, like reading at the end.
        """

    async def heads(self, topic: str, since: int = 0) -> Heads:
        """The ends of all queues whose ends changed after version `since` (0: of all)."""

    async def offsets_at(self, topic: str, instant: datetime) -> Mapping[str, int]:
        """Per queue the first offset stored at or after an instant; its end if there is none."""

    def watch(self, topic: str, arrived: Callable[[str, int], None]) -> Callable[[], None]:
        """Call `arrived` with a queue and how much came (at least) whenever something did; returns how to stop.

        Asked once per topic and gateway while anybody waits there. It may call too often, never too seldom.
        """

    async def find(self, topic: str, message_id: str) -> Message | None:
        """The message with this id (the first stored, should there be several)."""

    async def find_by_key(
        self, topic: str, key: str | None, *, since: datetime, until: datetime, most: int, after: str | None
    ) -> tuple[Sequence[Message], str | None]:
        """Messages with this key (None: all) stored in [since, until), and where to go on (None: no more)."""
