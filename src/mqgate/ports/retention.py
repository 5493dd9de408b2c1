"""Deletion of old messages, for a log that does not delete them itself."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Protocol

__all__ = ["RetentionStore"]


class RetentionStore(Protocol):
    """A log whose messages are deleted by age and by size."""

    def topics(self) -> Iterable[str]:
        """Return the names of all topics in the log, including private topics of groups."""

    async def delete_older(self, topic: str, retention: timedelta) -> int:
        """Delete messages that were stored longer ago than `retention`. Return their number."""

    async def delete_excess(self, topic: str, max_bytes: int) -> int:
        """Delete the oldest messages until the topic has at most `max_bytes`. Return their number."""
