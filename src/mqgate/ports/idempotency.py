"""Storage of idempotency keys with the response of the publish that used them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Claim(NamedTuple):
    """A key that a publish is about to use, with the digest of the message and its id."""

    topic: str
    key: str
    digest: str
    id: str


class KeyRecord(NamedTuple):
    """An earlier use of a key. Without a response, the message may or may not have been published.

    The response is missing if the gateway stopped during the publish, or if the outcome of the append is unknown.
    """

    digest: str
    response: str | None


class IdempotencyStore(Protocol):
    """A durable store of idempotency keys."""

    async def claim(self, claims: Sequence[Claim]) -> Sequence[KeyRecord | None]:
        """Record keys before their messages are published. Return the earlier use of each key.

        None: the key is new, and the caller publishes. A KeyRecord without a response: the caller owns the key, and
        must check whether the log contains the message before it publishes.
        """

    async def complete(self, claims: Sequence[Claim], responses: Sequence[str]) -> None:
        """Record the response of each publish. Repeats within the idempotency window return it."""

    async def release(self, claims: Sequence[Claim]) -> None:
        """Free keys whose messages were not published."""

    async def forget(self, topic: str) -> None:
        """Delete all keys of a topic."""

    async def tidy(self) -> None:
        """Delete keys whose idempotency window is over. The gateway calls it regularly."""
