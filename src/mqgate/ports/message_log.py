"""Storage of messages: topics with queues, each an append-only log with dense offsets."""

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
    """The bounds of queues at a version of the log. A call with `since` returns only the queues that changed after it.

    `closed`: all queues that cannot be read now, whatever `since` was.
    `boots`: the broker boot of each returned queue whose broker can lose messages when it restarts.
    `last_append_ms`: the store time of the newest message of a queue, by the clock of the log, where it is known.
    `is_growth`: the returned queues have only received messages after `since`; nothing else of them has changed.
    """

    version: int
    queues: Mapping[str, QueueBounds]
    closed: frozenset[str] = frozenset()
    boots: Mapping[str, BrokerBoot] = MappingProxyType({})
    last_append_ms: Mapping[str, int] = MappingProxyType({})
    is_growth: bool = False


class MessageLog(Protocol):
    """A message log. Raises TopicNotFound, QueueNotFound, and QueueUnavailable for closed queues."""

    async def create(self, topic: str, queues: int, *, is_per_broker: bool = False) -> None:
        """Create a topic, adopt an existing one, or add queues to it, never remove any. Repeats change nothing.

        The topic has at least `queues` queues in total. With `is_per_broker` it has them on every live broker, so that
        it can be written while any of them is up.
        """

    async def drop(self, topic: str) -> None:
        """Delete a topic and all of its messages. A missing topic is not an error."""

    async def append(self, topic: str, drafts: Sequence[Draft], producer: str = "") -> Sequence[Stored | MqgateError]:
        """Store messages durably and return one outcome per message, in the given order.

        Messages of one queue keep their order. A returned error means that this message was not stored;
        OutcomeUnknown means that it may have been. A raised error means that no message of the call was stored.
        `producer` is passed to the broker.
        """

    async def read(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, group: str = ""
    ) -> Sequence[Message]:
        """Return consecutive messages from an offset: at most `max_count`, and at least one if the offset exists.

        `max_bytes` limits the bodies after the first message. The result is empty below the min offset and at the end
        of the queue. `group` is passed to the broker.
        """

    async def read_columns(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, names: Sequence[str]
    ) -> "pa.RecordBatch":
        """Return what `read` returns, for bulk reads: the named columns of `message_columns`, in the given order.

        All columns of variable size count towards `max_bytes`, and the log may return fewer messages than fit.
        """

    async def bounds(self, topic: str, since: int = 0) -> TopicBounds:
        """Return the bounds of the queues that changed after version `since` (0: all queues). They may be stale."""

    async def current_bounds(self, topic: str, *, is_complete: bool = True) -> TopicBounds:
        """Return the bounds of all queues, including every message stored before the call by any gateway.

        This may take longer than `bounds`. If not `is_complete`, the latest messages may be missing, and the call
        returns almost at once. For a closed queue, or if its broker does not respond, the bounds are those of `bounds`.
        """

    def is_known_missing(self, topic: str) -> bool:
        """Return whether the topic was missing at the last check, without I/O. `bounds` would raise TopicNotFound.

        Another gateway may have created it since. `current_bounds`, `read` and `drop` check again.
        """

    async def offsets_at(self, topic: str, instant: datetime) -> Mapping[str, int]:
        """Return for each queue the first offset stored at or after an instant, or its max offset if there is none."""

    def watch(self, topic: str, arrived: Callable[[str, int], None]) -> Callable[[], None]:
        """Call `arrived` with a queue and a minimum number of new messages after each arrival. Return a stop function.

        A gateway watches a topic once while receives are parked on it. Calls may be spurious, but none is missed. A
        closed queue that becomes readable counts as an arrival of its messages.
        """

    async def find(self, topic: str, message_id: str) -> Message | None:
        """Return the message with this id. If several have it, the first one stored."""

    async def find_by_key(
        self, topic: str, key: str | None, *, since: datetime, until: datetime, limit: int, after: str | None
    ) -> tuple[Sequence[Message], str | None]:
        """Return messages with this key (None: all) stored in [since, until), and the next cursor (None: no more).

        Raises InvalidValue if `after` is not a valid cursor.
        """
