"""A gateway on the RocketMQ cluster `one`, and Apache's Java client in the same namespace."""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from java_client import Java, JavaClient, compiled

from cluster import set_timers
from mqgate import bootstrap
from mqgate.settings import MessageSettings, RocketMQSettings, Settings
from mqgate.stack import Stack


@pytest.fixture(scope="session")
def java_client(rocketmq: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    home = tmp_path_factory.mktemp("java")
    classes = compiled(home)
    if classes is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("there is Java, but no javac: install a JDK")
    client = JavaClient(classes, home, rocketmq.name_server)
    yield client
    client.close()


@pytest.fixture
def namespace() -> str:
    """Return a namespace for this test, so that topics of other tests do not interfere."""
    return uuid4().hex[:8]


@pytest.fixture
def java(java_client: JavaClient, namespace: str) -> Java:
    return Java(java_client, namespace)


@pytest.fixture
def timers(rocketmq: Stack) -> Iterator[None]:
    """Enable RocketMQ's own timers while the test runs."""
    set_timers(rocketmq, are_on=True)
    yield
    set_timers(rocketmq, are_on=False)


@pytest.fixture
def settings(settings: Settings, rocketmq: Stack, namespace: str) -> Settings:
    return replace(
        settings,
        sqlite=replace(settings.sqlite, synchronous="normal"),
        messages=MessageSettings(engine="rocketmq"),
        rocketmq=RocketMQSettings(name_servers=(rocketmq.name_server,), cluster="one", namespace=namespace),
    )


@pytest.fixture
async def gateway(settings: Settings) -> AsyncIterator[bootstrap.Gateway]:
    """Return a gateway on the real clock, which the brokers use too."""
    async with bootstrap.gateway(settings) as built:
        yield built
