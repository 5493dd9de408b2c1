"""Without a name server: messages flow, readiness reports it, and a gateway can start.

The test uses a stack of its own, because all other tests share the name server.
"""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from fault_calls import Gateway, eventually, opened

from cluster import NO_TIMERS
from mqgate.settings import MessageSettings, RocketMQSettings, Settings, SqliteSettings
from mqgate.stack import BrokerSpec, Stack
from mqgate.stack.plan import NAME_SERVER
from mqgate.testing.server_process import ServerProcess


@pytest.fixture
def own(rocketmq: Stack, tmp_path: Path) -> Iterator[Stack]:
    """A name server and one broker for this test. Skipped where `rocketmq` is skipped."""
    stack = Stack(tmp_path / "stack")
    stack.up((BrokerSpec(name="broker-a", cluster="own", settings=NO_TIMERS),))
    yield stack
    stack.down()


@pytest.fixture
def settings(own: Stack, tmp_path: Path) -> Settings:
    return Settings(
        messages=MessageSettings(engine="rocketmq"),
        rocketmq=RocketMQSettings(name_servers=(own.name_server,), mirror_interval=timedelta(seconds=0.5)),
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), synchronous="normal"),
    )


@pytest.mark.slow
async def test_messages_flow_while_the_name_server_is_down(own: Stack, settings: Settings, tmp_path: Path) -> None:
    """A gateway that knows the brokers needs no name server. Another one waits for it and reports it."""
    async with opened(settings) as gateway:
        await gateway.shop()
        await gateway.stored(body="before")
        assert len(await gateway.drain(wait=0)) == 1

        await asyncio.to_thread(own.kill, NAME_SERVER)
        await flows(gateway, "down")
        # Whatever is remembered for a moment only is forgotten by then.
        await asyncio.sleep(1)
        await flows(gateway, "still down")
        status, readiness, parts = await gateway.ready()
        assert (status, readiness) == (200, "degraded")
        assert (parts["name server"], parts["broker broker-a"]) == ("unreachable", "ok")
        newcomer = ServerProcess(tmp_path / "other", "--config", str(config(tmp_path, settings)))
        await asyncio.to_thread(newcomer.start)
        try:
            await responds_503(newcomer.url)

            await asyncio.to_thread(own.start, NAME_SERVER)
            # The broker has not registered at the new one yet.
            await flows(gateway, "new")
            await eventually(lambda: is_ready(newcomer.url), 20)
            await eventually(lambda: is_stored(newcomer.url), 5)
        finally:
            await asyncio.to_thread(newcomer.stop)
        assert (await gateway.ready())[:2] == (200, "ok")
        await flows(gateway, "up")


async def flows(gateway: Gateway, word: str) -> None:
    """Publish and receive, with and without a wait and a key."""
    parked = asyncio.create_task(gateway.receive(wait=10))
    await gateway.parked()
    await gateway.stored(body=f"{word}-0", key="k")
    async with asyncio.timeout(8):
        received = await parked
    assert [message["body"] for message in received["messages"]] == [f"{word}-0"]
    assert await gateway.ack(received) == ["applied"]
    for number in range(1, 6):
        await gateway.stored(body=f"{word}-{number}")
    assert len(await gateway.drain(wait=0)) == 5


def config(directory: Path, settings: Settings) -> Path:
    """A settings file with a topic that cannot be created yet."""
    path = directory / "mqgate.toml"
    servers = list(settings.rocketmq.name_servers)
    path.write_text(f"""
[messages]
engine = "rocketmq"
[logging]
level = "error"
[rocketmq]
name_servers = {servers}
[[topic]]
name = "later"
queues = 1
[[group]]
name = "readers"
topic = "later"
""")
    return path


async def responds_503(url: str) -> None:
    """Return whether a gateway that never reached RocketMQ responds with 503."""
    async with httpx.AsyncClient(base_url=url) as api:
        ready = await api.get("/readyz")
        put = await api.put("/v1/topics/later", json={"queues": 1})
    assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
    assert ready.json()["parts"]["log"] == "storage_unavailable"
    assert (put.status_code, put.json()["code"]) == (503, "storage_unavailable")
    assert "retry-after" in put.headers


async def is_stored(url: str) -> bool:
    """Return whether the topic of the file exists and works."""
    async with httpx.AsyncClient(base_url=url) as api:
        if (await api.post("/v1/topics/later/messages", json={"body": "x"})).status_code != 201:
            return False
        received = await api.post("/v1/groups/readers/receive", json={"wait": 1})
    return received.status_code == 200 and len(received.json()["messages"]) == 1


async def is_ready(url: str) -> bool:
    async with httpx.AsyncClient(base_url=url) as api:
        return (await api.get("/readyz")).status_code == 200
