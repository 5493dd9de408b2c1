"""Where messages lie: topics of queues, each an append-only log with dense offsets."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mqgate.core.errors import MqgateError
from mqgate.core.lease import BrokerBoot, QueueBounds
from mqgate.core.message import Draft, Message, Stored

if TYPE_CHECKING:
    import pyarrow as pa


class TopicBounds(NamedTuple):
    """Ends of queues as of a version; a later question `since` that version brings only what changed.

    `closed`: all queues that cannot be read now, with every answer, whatever `since` was.
    `boots`: of those among the queues whose broker can be started anew.
    `rose`: when their newest messages were stored, in milliseconds by the log's clock, as far as that is known.
    """

    version: int
    queues: Mapping[str, QueueBounds]
    closed: frozenset[str] = frozenset()
    boots: Mapping[str, BrokerBoot] = MappingProxyType({})
    last_append_ms: Mapping[str, int] = MappingProxyType({})


class MessageLog(Protocol):
    """A log. Unknown topics raise TopicNotFound, unknown queues QueueNotFound, closed ones QueueUnavailable."""

    async def create(self, topic: str, queues: int) -> None:
        """Make a topic, or adopt one that is there, or give it more queues; never fewer. Repeats change nothing."""

    async def drop(self, topic: str) -> None:
        """Remove a topic and all its messages. A topic that is not there is no error."""

    async def append(self, topic: str, drafts: Sequence[Draft], producer: str = "") -> Sequence[Stored | MqgateError]:
        """Store messages durably, those of a queue in the given order; what became of each, in that order.

        An error as a value says that this message was not stored, OutcomeUnknown that it may have been. What
        is raised concerns the whole call: nothing of it was stored. `producer` is told to the broker.
        """

    async def read(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, group: str = ""
    ) -> Sequence[Message]:
        """Consecutive messages from an offset: at most so many, at least one if there is one there.

        Reading below the first kept offset gives nothing, like reading at the end. A queue that cannot be read
        now raises QueueUnavailable. `group` is told to the broker.
        """

    async def read_columns(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, names: Sequence[str]
    ) -> "pa.RecordBatch":
        """As `read`, for those who read much: the named columns of `message_columns`, in the order asked for.

        Everything variable counts towards the bytes, and a log may stop before they are full. No rows: nothing is
        there, or no longer.
        """

    async def bounds(self, topic: str, since: int = 0) -> TopicBounds:
        """The ends of all queues whose ends changed after version `since` (0: of all); they may be of a moment ago."""

    async def current_bounds(self, topic: str, *, is_complete: bool = True) -> TopicBounds:
        """The ends of all queues, with all that was stored before the question, whoever stored it; it may take longer.

        Not `is_complete`: with what can be seen by now, which is nearly all, and nearly at once. Of a queue that cannot
        be read now, or whose broker does not say, what `heads` tells.
        """

    def is_known_missing(self, topic: str) -> bool:
        """Whether a topic was not there a moment ago, without asking anybody: `heads` would raise TopicNotFound.

        Another gateway may have made it since. `current_bounds`, `read` and `drop` do not go by that.
        """

    async def offsets_at(self, topic: str, instant: datetime) -> Mapping[str, int]:
        """Per queue the first offset stored at or after an instant; its end if there is none."""

    def watch(self, topic: str, arrived: Callable[[str, int], None]) -> Callable[[], None]:
        """Call `arrived` with a queue and how much came (at least) whenever something did; returns how to stop.

        Asked once per topic and gateway while anybody waits there. It may call too often, never too seldom: a
        closed queue that opens again counts as an arrival of what it holds.
        """

    async def find(self, topic: str, message_id: str) -> Message | None:
        """The message with this id (the first stored, should there be several)."""

    async def find_by_key(
        self, topic: str, key: str | None, *, since: datetime, until: datetime, limit: int, after: str | None
    ) -> tuple[Sequence[Message], str | None]:
        """Messages with this key (None: all) stored in [since, until), and where to go on (None: no more).

        InvalidValue if `after` is nothing that this log could have answered.
        """
