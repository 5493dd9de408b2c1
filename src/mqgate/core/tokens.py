"""A token bucket as a value."""

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
