"""Committed offsets, kept a second time beside the messages.

The lease store decides; this is what the middleware's own tools show of a group, and where a group goes on when its
lease state is lost. It may lag some seconds behind, which costs duplicates, never messages.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class OffsetMirror(Protocol):
    async def open(self, group: str) -> None:
        """Make the group known; repeating it changes nothing."""

    async def read(self, group: str, topic: str, queues: Sequence[str]) -> Mapping[str, int | None]:
        """What was written of these queues, None where nothing was; those that cannot be read now are missing."""

    async def write(self, group: str, topic: str, offsets: Mapping[str, int]) -> None:
        """Keep offsets, forwards or backwards; of a queue that is gone they are dropped."""

    async def forget(self, group: str) -> None:
        """Drop the group and all that it wrote."""
