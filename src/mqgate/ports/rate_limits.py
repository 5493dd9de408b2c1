"""How fast producers may publish, counted over all gateways."""

from typing import Protocol

from mqgate.core.entries import RateLimit


class RateLimitStore(Protocol):
    """A token bucket for each name, full at first, by one clock. It need not survive anything: it fills again."""

    async def take(self, name: str, limit: RateLimit, max_count: int) -> tuple[int, float]:
        """Take whole tokens, `max_count` if there are as many: how many it was, and seconds until there is one more.

        What all gateways take never exceeds the burst and what the rate has given since.
        """
