"""Life cycle of the wake-up subscription."""

import asyncio

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.wake_ups import WakeUpSubscription


async def test_the_subscription_stops_at_any_point_of_its_start(server: RedisClient, prefix: str) -> None:
    """A stop during a connect or a write must not be lost, else a gateway that is stopped early never ends."""
    for turns in range(100):
        wakes = WakeUpSubscription(server, f"{prefix}:wake", "us", lambda *_: None, lambda: None)
        wakes.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await wakes.stop()
