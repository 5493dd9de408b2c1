"""Gateways on two real brokers, `broker-a` and `broker-b`, that the test may kill, hang or misconfigure."""

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
    """A name space of its own for every test: nobody else's topics are in the way."""
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
    """What RocketMQ calls our topics and groups."""
    return lambda name: f"{settings.rocketmq.namespace}%{name}"


@pytest.fixture
def open_gateway(settings: Settings) -> Open:
    """A gateway in this process; the next one on the same settings is the same one, started again."""
    return lambda: opened(settings)


@pytest.fixture
async def gateway(open_gateway: Open) -> AsyncIterator[Gateway]:
    async with open_gateway() as built:
        yield built


@pytest.fixture
async def direct(pair: Stack) -> AsyncIterator[RocketMQClient]:
    """Past the gateway: what another RocketMQ client, or an operator, does."""
    client = RocketMQClient([pair.name_server])
    await client.routes.brokers()
    yield client
    await client.close()
