"""Token buckets that limit how fast producers publish, shared by all gateways."""

from typing import Protocol

from mqgate.core.entries import RateLimit


class RateLimitStore(Protocol):
    """A token bucket per name, on one clock. A bucket is full at first and need not survive a restart."""

    async def take(self, name: str, limit: RateLimit, max_count: int) -> tuple[int, float]:
        """Take up to `max_count` whole tokens. Return how many, and the seconds until one more is available.

        All gateways together never take more than the burst plus the tokens that the rate has added since.
        """
