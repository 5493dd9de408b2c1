"""Fixtures of the /mq tests: a topic with a producer and two consumers."""

import httpx
import pytest
from mq_calls import Mq


@pytest.fixture
async def mq(api: httpx.AsyncClient) -> Mq:
    """Topic T with two queues, producer P, clustering consumer C, broadcast consumer B."""
    mq = Mq(api)
    await mq.register("topics/T", queues=2)
    await mq.register("producers/P", topic="T")
    await mq.register("groups/C", topic="T", mode="queue", visibility="300s")
    await mq.register("groups/B", topic="T", mode="broadcast")
    return mq
