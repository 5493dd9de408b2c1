"""The interface of the source to a log, independent of the transport."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

__all__ = ["FIELDS", "AccessDenied", "Ends", "Log", "LogError", "LogUnavailable", "TopicMissing"]

# Columns of `read` and their types. Properties are the text of a JSON object, or null.
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
    """A failed call to a log. The text states the remedy."""


class TopicMissing(LogError):
    """The topic or queue does not exist."""


class AccessDenied(LogError):
    """The key is missing, wrong, expired, or lacks the permission."""


class LogUnavailable(LogError):
    """No server responded within the configured retries."""


class Ends(NamedTuple):
    """The bounds of a queue: the first retained offset, and the next offset to be written."""

    min: int
    max: int


class Log(Protocol):
    """A synchronous log client of the driver and the executors. One thread may use it at a time."""

    def topics(self) -> list[str]:
        """Return the names of all topics except internal ones."""

    def ends(self, topic: str) -> dict[str, Ends]:
        """Return the bounds of all queues. Raise LogUnavailable if a queue cannot be read now."""

    def offsets_at(self, topic: str, at_ms: int) -> dict[str, int]:
        """Return per queue the first offset stored at or after an instant, or the end of the queue."""

    def committed(self, topic: str, group: str) -> dict[str, int]:
        """Return the committed offsets of a group, without queues that it never committed."""

    def commit(self, topic: str, group: str, offsets: Mapping[str, int]) -> None:
        """Move a group, so that its lag shows the progress of the query."""

    def read(self, topic: str, queue: str, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of [start, end) in order, with these columns of FIELDS.

        The iterator ends early only where messages no longer exist. The caller must compare the offsets.
        """

    def close(self) -> None: ...
