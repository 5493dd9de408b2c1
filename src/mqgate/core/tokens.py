"""A token bucket as a value: how many tokens there are, and when that was true."""

from typing import NamedTuple, Self

from mqgate.core.entries import RateLimit


class Bucket(NamedTuple):
    """Tokens left at an instant (in milliseconds of the store's clock)."""

    tokens: float
    at_ms: int

    @classmethod
    def full(cls, limit: RateLimit, now_ms: int) -> Self:
        return cls(limit.burst, now_ms)

    def at(self, limit: RateLimit, now_ms: int) -> "Bucket":
        """Refilled for the time passed; a clock that stands still refills nothing."""
        passed = max(now_ms - self.at_ms, 0)
        return Bucket(min(self.tokens + passed * limit.rate / 1000, limit.burst), max(now_ms, self.at_ms))

    def take(self, count: float) -> "Bucket":
        return self._replace(tokens=self.tokens - count)

    def wait_ms(self, limit: RateLimit, count: float) -> float:
        """How long until that many tokens are there."""
        return max(count - self.tokens, 0) * 1000 / limit.rate
