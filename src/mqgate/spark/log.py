"""What the source asks of a log, over whichever transport."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

__all__ = ["FIELDS", "AccessDenied", "Ends", "Log", "LogError", "LogUnavailable", "TopicMissing"]

# What `read` can give, and how it is typed; properties as the text of a JSON object, null if there are none.
FIELDS: Mapping[str, pa.DataType] = {
    "id": pa.string(),
    "offset": pa.int64(),
    "key": pa.string(),
    "tag": pa.string(),
    "properties": pa.string(),
    "body": pa.binary(),
    "storedAt": pa.timestamp("us", tz="UTC"),
}


class LogError(Exception):
    """A log that did not give what was asked; the text says what to do."""


class TopicMissing(LogError):
    """There is no such topic, or queue of it."""


class AccessDenied(LogError):
    """The key is missing, wrong, expired, or may not do this."""


class LogUnavailable(LogError):
    """Nobody answered, however often and wherever it was tried."""


class Ends(NamedTuple):
    """Of a queue: the first kept offset, and the next to be written."""

    min: int
    max: int


class Log(Protocol):
    """A log as the driver and the executors see it. Synchronous; used by one thread at a time."""

    def topics(self) -> list[str]:
        """The names of all topics but our own."""

    def ends(self, topic: str) -> dict[str, Ends]:
        """The ends of all queues; a queue that cannot be read now raises LogUnavailable."""

    def offsets_at(self, topic: str, at_ms: int) -> dict[str, int]:
        """Per queue the first offset stored at or after an instant; its end if there is none."""

    def committed(self, topic: str, group: str) -> dict[str, int]:
        """Where a group stands; a queue that it never committed is left out."""

    def commit(self, topic: str, group: str, offsets: Mapping[str, int]) -> None:
        """Move a group, for those who look at its lag."""

    def read(self, topic: str, queue: str, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The messages of [start, end) in order, the columns (names of FIELDS) as asked.

        Ends early only where messages are gone: who calls compares with what was asked.
        """

    def close(self) -> None: ...
