"""Gateways for tests: with custom settings, with a topic and a group, and on both control engines."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from native_calls import publish, put, receive, settle

from mqgate import bootstrap
from mqgate.settings import ControlSettings, HttpSettings, PostgresSettings, Settings, StatsSettings
from mqgate.stats.engine import open_stats
from mqgate.testing.clock import ManualClock

OpenApi = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Disable fsync. Durability is tested elsewhere."""
    return replace(settings, sqlite=replace(settings.sqlite, synchronous="normal"))


@pytest.fixture
async def open_api(settings: Settings, clock: ManualClock) -> AsyncIterator[OpenApi]:
    """Return a function that opens a gateway with the given settings."""
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


@pytest.fixture(params=["embedded", "postgres"])
async def either(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway with control data, timers, dead letters and figures in SQLite, or in PostgreSQL.

    Topic `orders` of one queue, whose first two messages are dead letters of group `workers`.
    """
    url, schema = "", f"test_{uuid4().hex}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").postgres_url
        settings = replace(
            settings,
            control=ControlSettings(engine="postgres"),
            stats=StatsSettings(engine="postgres"),
            postgres=PostgresSettings(url=url, schema=schema),
        )
    async with bootstrap.gateway(settings) as gateway:
        open_stats(settings, is_writing=True)
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            await put(client, "topics/orders", queues=1)
            await put(client, "groups/workers", topic="orders", maxAttempts=1)
            await publish(client, "poison", "poison too", "ready", key="k")
            for message in (await receive(client, max=2))["messages"]:
                assert (await settle(client, "nack", message["receipt"])).status_code == 200
            yield client
    if url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())
