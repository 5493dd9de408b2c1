"""A copy of the committed offsets, stored as the consumer offsets of the broker.

The lease store is authoritative. The copy serves the tools of the broker, and a group resumes from it if its lease
state is lost. It may be some seconds old, which causes duplicates but never loses messages.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class OffsetMirror(Protocol):
    """The consumer offsets of groups on a broker."""

    async def open(self, group: str) -> None:
        """Register the group at the broker. Repeats change nothing."""

    async def read(self, group: str, topic: str, queues: Sequence[str]) -> Mapping[str, int | None]:
        """Return the stored offset of each queue, or None if there is none. Queues that cannot be read are omitted."""

    async def write(self, group: str, topic: str, offsets: Mapping[str, int]) -> None:
        """Store offsets, higher or lower than before. Offsets of queues that no longer exist are ignored."""

    async def forget(self, group: str) -> None:
        """Delete the group and all of its offsets."""
