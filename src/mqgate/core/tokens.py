"""A token bucket as a value, and the tokens of a group."""

import math
from typing import NamedTuple, Self

from mqgate.core.entries import RateLimit


class Bucket(NamedTuple):
    """The number of tokens at an instant, in milliseconds by the clock of the store."""

    tokens: float
    at_ms: int

    @classmethod
    def full(cls, limit: RateLimit, now_ms: int) -> Self:
        return cls(limit.burst, now_ms)

    def at(self, limit: RateLimit, now_ms: int) -> "Bucket":
        """Return the bucket refilled for the time that passed. A clock that moves backwards refills nothing."""
        passed = max(now_ms - self.at_ms, 0)
        return Bucket(min(self.tokens + passed * limit.rate / 1000, limit.burst), max(now_ms, self.at_ms))

    def take(self, count: float) -> "Bucket":
        return self._replace(tokens=self.tokens - count)

    def wait_ms(self, limit: RateLimit, count: float) -> float:
        """Return the milliseconds until `count` tokens are available."""
        return max(count - self.tokens, 0) * 1000 / limit.rate


class GroupTokens:
    """The tokens of the rate limit of a group, shared by its lease scopes. None until the first use."""

    __slots__ = ("bucket", "is_changed")

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket
        self.is_changed = False

    def take(self, limit: RateLimit, max_count: int, now_ms: int) -> int:
        """Take up to `max_count` whole tokens and return their number."""
        bucket = (self.bucket or Bucket.full(limit, now_ms)).at(limit, now_ms)
        taken = min(max_count, int(bucket.tokens))
        self.bucket = bucket.take(taken)
        self.is_changed |= taken > 0
        return taken

    def refund(self, limit: RateLimit | None, count: int) -> None:
        if count and limit is not None and self.bucket is not None:
            self.bucket = self.bucket.take(-count)
            self.is_changed = True

    def next_at(self, limit: RateLimit | None, now_ms: int) -> int | None:
        """Return when the next token is available."""
        if self.bucket is None or limit is None:
            return None
        return now_ms + math.ceil(self.bucket.at(limit, now_ms).wait_ms(limit, 1))
