"""Every scenario is told on every engine; and a gateway that goes by the real clock, for scenarios that wait."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from uuid import uuid4

import httpx
import pytest

from mqgate import bootstrap
from mqgate.settings import LogSettings, RocketMQSettings, Settings
from mqgate.testing.clock import ManualClock


@pytest.fixture(params=["sqlite", pytest.param("rocketmq", marks=pytest.mark.rocketmq)])
def engine(request: pytest.FixtureRequest) -> str:
    """Where messages lie. On RocketMQ its cluster `one`, whose broker is called as the embedded one is."""
    return str(request.param)


@pytest.fixture
def settings(settings: Settings, engine: str, request: pytest.FixtureRequest) -> Settings:
    """Without an fsync for every answer: what survives a power cut is tested where it is promised."""
    settings = replace(settings, sqlite=replace(settings.sqlite, synchronous="normal"))
    if engine == "sqlite":
        return settings
    servers = (request.getfixturevalue("rocketmq").name_server,)
    # A name space of the test's own: topics of the same name do not meet.
    rocketmq = RocketMQSettings(name_servers=servers, cluster="one", namespace=uuid4().hex[:8])
    return replace(settings, log=LogSettings(engine="rocketmq"), rocketmq=rocketmq)


@pytest.fixture
def environment(settings: Settings) -> dict[str, str]:
    """What a gateway in a process of its own is told, to be on the test's engine."""
    if settings.log.engine == "sqlite":
        return {}
    rocketmq = settings.rocketmq
    return {
        "MQGATE_LOG_ENGINE": "rocketmq",
        "MQGATE_ROCKETMQ_NAME_SERVERS": ",".join(rocketmq.name_servers),
        "MQGATE_ROCKETMQ_CLUSTER": rocketmq.cluster,
        "MQGATE_ROCKETMQ_NAMESPACE": rocketmq.namespace,
    }


@pytest.fixture
def pass_time(engine: str, clock: ManualClock) -> Callable[[float], None]:
    """Moves the clock; a broker writes down its own, which cannot be moved, so there a moment passes."""

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
    async with httpx.AsyncClient(transport=transport, base_url="http://mqgate") as client:
        yield client
