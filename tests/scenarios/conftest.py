"""Fixtures of scenarios: every scenario runs on every engine; scenarios that wait use a gateway with the real clock."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest
from sides import Side, opened

from mqgate import bootstrap
from mqgate.settings import ControlSettings, PostgresSettings, Settings
from mqgate.stack import Stack
from mqgate.testing.clock import ManualClock
from production_set import as_environment, on_production


@pytest.fixture(params=["sqlite", pytest.param("rocketmq", marks=[pytest.mark.rocketmq, pytest.mark.redis])])
def engine(request: pytest.FixtureRequest) -> str:
    """The embedded engine, or RocketMQ with Redis and PostgreSQL. The broker of cluster `one` has the same name."""
    return str(request.param)


@pytest.fixture
def settings(settings: Settings, engine: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Settings without an fsync per response: durability is tested where it is promised."""
    settings = replace(settings, sqlite=replace(settings.sqlite, synchronous="normal"))
    if engine == "sqlite":
        yield settings
        return
    servers = [request.getfixturevalue(name) for name in ("rocketmq", "redis", "postgres")]
    with on_production(settings, *servers) as settings:
        yield settings


@pytest.fixture
def environment(settings: Settings) -> dict[str, str]:
    """Environment variables that select the engine of the test for a gateway in its own process."""
    return {} if settings.messages.engine == "sqlite" else as_environment(settings)


@pytest.fixture
def pass_time(engine: str, clock: ManualClock) -> Callable[[float], None]:
    """Move the clock. A broker uses its own clock, which cannot be moved, so there a moment passes."""

    def pass_time(seconds: float) -> None:
        clock.advance(seconds)
        if engine == "rocketmq":
            time.sleep(0.005)

    return pass_time


@pytest.fixture
async def live(settings: Settings) -> AsyncIterator[bootstrap.Gateway]:
    async with bootstrap.gateway(settings) as built:
        yield built


@pytest.fixture
async def live_api(live: bootstrap.Gateway) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=live.app, client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture
async def shared(settings: Settings, postgres: Stack) -> AsyncIterator[Settings]:
    """Settings of gateways that share control data; the distributed deployment shares everything."""
    if settings.control.engine == "postgres":
        yield settings
        return
    schema = f"test_{uuid4().hex}"
    own = PostgresSettings(url=postgres.postgres_url, schema=schema)
    yield replace(settings, control=ControlSettings(engine="postgres"), postgres=own)
    async with await psycopg.AsyncConnection.connect(postgres.postgres_url, autocommit=True) as connection:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


@pytest.fixture
async def both(shared: Settings, tmp_path: Path) -> AsyncIterator[tuple[Side, Side]]:
    """Two gateways side by side."""
    async with opened(shared, tmp_path / "a") as a, opened(shared, tmp_path / "b") as b:
        yield a, b
