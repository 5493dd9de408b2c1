"""Wake-ups between gateways: what becomes of the subscription."""

import asyncio

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.wake_ups import WakeUpSubscription


async def test_listening_ends_whenever_it_is_told_to(server: RedisClient, prefix: str) -> None:
    """In the middle of a connect or a write as well: else a gateway that is stopped at once never ends."""
    for turns in range(100):
        wakes = WakeUpSubscription(server, f"{prefix}:wake", "us", lambda *_: None, lambda: None)
        wakes.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await wakes.stop()
