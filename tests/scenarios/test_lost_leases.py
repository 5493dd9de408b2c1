"""Lost lease state: groups resume at their mirrored offsets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from message_calls import ack, bodies, operate, publish, shop, take

from mqgate import bootstrap
from mqgate.rocketmq import RocketMQClient
from mqgate.settings import Settings

# The embedded engine has leases and messages in one file: there is nothing to go on from.
pytestmark = [pytest.mark.rocketmq, pytest.mark.parametrize("engine", ["rocketmq"], indirect=True)]


@asynccontextmanager
async def opened(settings: Settings, prefix: str) -> AsyncIterator[httpx.AsyncClient]:
    async with built(settings, prefix) as (api, _):
        yield api


@asynccontextmanager
async def built(settings: Settings, prefix: str) -> AsyncIterator[tuple[httpx.AsyncClient, bootstrap.Gateway]]:
    """Return a gateway that sees only the lease state under that prefix."""
    own = replace(settings, redis=replace(settings.redis, prefix=f"{settings.redis.prefix}-{prefix}"))
    async with bootstrap.gateway(own) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            yield api, gateway


async def committed(settings: Settings) -> int | None:
    """Return the committed offsets of the group at the broker."""
    client = RocketMQClient(settings.rocketmq.name_servers)
    await client.routes.brokers()
    space = settings.rocketmq.namespace
    found = await client.offsets.committed("local", f"{space}%workers", f"{space}%orders", 0)
    await client.close()
    return found


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_group_resumes_at_its_mirrored_offsets(settings: Settings, mode: str) -> None:
    """Duplicates are possible, loss is not. Registering the group again does not restart it."""
    async with opened(settings, "first") as api:
        await shop(api, queues=1, mode=mode)
        await publish(api, *"abcdef")
        await take(api, max=4)

    async with opened(settings, "second") as api:
        await shop(api, queues=1, mode=mode)
        nothing_settled = bodies(await take(api, max=10))
        await operate(api, "seek", to={"local:0": 4})

    async with opened(settings, "third") as api:
        await shop(api, queues=1, mode=mode)
        after = bodies(await take(api, max=10))

    assert nothing_settled == list("abcdef")
    assert after == ["e", "f"]


async def test_acks_reach_the_mirror_when_the_gateway_stops(settings: Settings) -> None:
    """They are also written every few seconds before that, and the tools of RocketMQ show them."""
    async with opened(settings, "first") as api:
        await shop(api, queues=1)
        began = await committed(settings)
        await publish(api, *"abc")
        for message in (await take(api, max=3))[:2]:
            await ack(api, message)

    assert began == 0
    assert await committed(settings) == 2


async def test_a_seek_backwards_is_mirrored_before_its_response(settings: Settings) -> None:
    """If the lease state were lost a moment later, the repeated messages would otherwise be skipped."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, mirror_interval=timedelta(hours=1)))
    async with opened(settings, "first") as api:
        await shop(api, queues=1)
        await publish(api, *"abc")
        await operate(api, "seek", to="latest")
        ahead = await committed(settings)
        await operate(api, "seek", to={"local:0": 1})

        assert (ahead, await committed(settings)) == (3, 1)


async def test_a_concurrent_mirror_write_does_not_undo_a_seek(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow background write has older offsets. Those of the seek must be stored last."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, mirror_interval=timedelta(hours=1)))
    async with built(settings, "first") as (api, gateway):
        await shop(api, queues=1)
        await publish(api, *"abc")
        for message in await take(api, max=3):
            await ack(api, message)
        mirror: Any = gateway.mirror._mirror
        write, began, go_on = mirror.write, asyncio.Event(), asyncio.Event()

        async def slowly(*arguments: Any) -> None:
            began.set()
            await go_on.wait()
            await write(*arguments)

        monkeypatch.setattr(mirror, "write", slowly)
        background = asyncio.create_task(gateway.mirror.run_once())
        await began.wait()
        monkeypatch.setattr(mirror, "write", write)
        seek = asyncio.create_task(operate(api, "seek", to={"local:0": 1}))
        await asyncio.wait((seek,), timeout=0.2)
        go_on.set()
        await asyncio.gather(background, seek)

        assert await committed(settings) == 1
