"""Which idempotency keys were used, with what, and what was answered."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Claim(NamedTuple):
    """Somebody is about to publish under a key."""

    topic: str
    key: str
    digest: str
    id: str


class KeyRecord(NamedTuple):
    """The key was used before. No answer: it may or may not have been published.

    The process that used it is gone, or nobody answered it.
    """

    digest: str
    answer: str | None


class IdempotencyStore(Protocol):
    async def claim(self, claims: Sequence[Claim]) -> Sequence[KeyRecord | None]:
        """Record keys before their messages are sent; None: yours, go on.

        KeyRecord without an answer: yours too, but look first whether the message is there already.
        """

    async def complete(self, claims: Sequence[Claim], answers: Sequence[str]) -> None:
        """Record what was answered; repeats get it for the length of the window."""

    async def release(self, claims: Sequence[Claim]) -> None:
        """Nothing was sent: the keys are free again."""

    async def forget(self, topic: str) -> None:
        """Drop all keys of a topic."""
