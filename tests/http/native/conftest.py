"""A gateway of a test's own making, and one with a topic and a group to start from."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest
from native_calls import put

from mqgate import bootstrap
from mqgate.settings import HttpSettings, Settings
from mqgate.testing.clock import ManualClock

OpenApi = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Without an fsync for every answer: what survives a power cut is tested where it is promised."""
    return replace(settings, sqlite=replace(settings.sqlite, synchronous="normal"))


@pytest.fixture
async def open_api(settings: Settings, clock: ManualClock) -> AsyncIterator[OpenApi]:
    """Opens a gateway whose [http] settings, or other groups of them, the test names."""
    async with AsyncExitStack() as stack:

        async def open_api(groups: dict[str, Any] | None = None, **http: Any) -> httpx.AsyncClient:
            own = replace(settings, http=HttpSettings(**http), **(groups or {}))
            gateway = await stack.enter_async_context(bootstrap.gateway(own, wall_ms=clock))
            transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
            client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
            return await stack.enter_async_context(client)

        yield open_api


@pytest.fixture
async def shop(api: httpx.AsyncClient) -> httpx.AsyncClient:
    """Topic `orders` of one queue, read by group `workers` in queue mode."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/workers", topic="orders", mode="queue")
    return api
