"""Gateways on two real brokers, `broker-a` and `broker-b`, that a test can kill, suspend or misconfigure."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from fault_calls import Gateway, Open, opened

from mqgate.rocketmq import RocketMQClient
from mqgate.settings import MessageSettings, RocketMQSettings, Settings, SqliteSettings
from mqgate.stack import Stack


@pytest.fixture
def settings(pair: Stack, tmp_path: Path) -> Settings:
    """Return settings with a namespace that belongs to the test."""
    return Settings(
        messages=MessageSettings(engine="rocketmq"),
        rocketmq=RocketMQSettings(
            name_servers=(pair.name_server,),
            cluster="pair",
            namespace=f"faults{uuid4().hex[:8]}",
            mirror_interval=timedelta(seconds=0.5),
        ),
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), synchronous="normal", tidy_interval=timedelta(hours=1)),
    )


@pytest.fixture
def wire(settings: Settings) -> Callable[[str], str]:
    """Return the name of a topic or group on RocketMQ."""
    return lambda name: f"{settings.rocketmq.namespace}%{name}"


@pytest.fixture
def open_gateway(settings: Settings) -> Open:
    """Open a gateway in this process. The next one with the same settings is a restart of it."""
    return lambda: opened(settings)


@pytest.fixture
async def gateway(open_gateway: Open) -> AsyncIterator[Gateway]:
    async with open_gateway() as built:
        yield built


@pytest.fixture
async def direct(pair: Stack) -> AsyncIterator[RocketMQClient]:
    """A RocketMQ client that bypasses the gateway, as other clients and operators do."""
    client = RocketMQClient([pair.name_server])
    await client.routes.brokers()
    yield client
    await client.close()
