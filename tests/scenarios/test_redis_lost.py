"""Redis loses all data or stops: groups resume at their mirrored offsets. Duplicates are possible, loss is not."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from message_calls import (
    Json,
    ack,
    bodies,
    counts,
    operate,
    outcome,
    publish,
    receive,
    settle,
    shop,
    take,
)

from mqgate import bootstrap
from mqgate.settings import Settings
from mqgate.stack import Stack
from production_set import on_production
from redis_server import operator

pytestmark = pytest.mark.parametrize(
    "engine", [pytest.param("rocketmq", marks=[pytest.mark.rocketmq, pytest.mark.redis])], indirect=True
)
MODES = pytest.mark.parametrize("mode", ["message", "queue"])
LOSSES = pytest.mark.parametrize("loss", ["flushed", "killed"])
LONG = 20


@pytest.fixture
def settings(settings: Settings, mortal_redis: Stack, rocketmq: Stack, postgres: Stack) -> Iterator[Settings]:
    """The distributed deployment with a Redis of this module. The mirror is written only when a test calls it."""
    with on_production(settings, rocketmq, mortal_redis, postgres) as own:
        yield replace(own, rocketmq=replace(own.rocketmq, mirror_interval=timedelta(hours=1)))


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[tuple[httpx.AsyncClient, bootstrap.Gateway]]:
    async with bootstrap.gateway(settings) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as api:
            yield api, gateway


async def lose(stack: Stack, loss: str) -> None:
    if loss == "flushed":
        with operator(stack.redis_url) as redis:
            redis.flushall()
        return
    await asyncio.to_thread(stack.kill, "redis")
    await asyncio.to_thread(stack.start, "redis")


@LOSSES
@MODES
async def test_a_group_resumes_at_its_mirror_under_a_new_incarnation(
    settings: Settings, mortal_redis: Stack, mode: str, loss: str
) -> None:
    """Messages acked since the last mirror write are repeated. Old receipts are gone and change nothing."""
    async with opened(settings) as (api, gateway):
        await shop(api, mode=mode, visibility="1h")
        await publish(api, *"abcdef")
        first = await receive(api, max=2)
        await settle_batch(api, first)
        await gateway.mirror.run_once()
        second = await receive(api, max=2)
        await settle_batch(api, second)
        held = await receive(api, max=1)

        await lose(mortal_redis, loss)
        again = await receive(api, max=10)
        late = await settle(api, "ack", receipt_of(held))

        assert bodies(first["messages"] + second["messages"] + held["messages"]) == list("abcde")
        assert bodies(again["messages"]) == list("cdef")
        assert (late.status_code, late.json()["outcome"]) == (410, "gone")
        await settle_batch(api, again)
        assert await counts(api) == (0, 0, 0)


def receipt_of(response: Json) -> Any:
    """Return the receipt of the batch, or of its only message."""
    return response["lease"]["receipt"] if response.get("lease") else response["messages"][0]["receipt"]


async def settle_batch(api: httpx.AsyncClient, response: Json) -> None:
    if response.get("lease"):
        assert await outcome(api, "ack", receipt_of(response)) == (200, "applied")
    else:
        await ack(api, *response["messages"])


@LOSSES
async def test_no_message_is_lost_if_redis_fails_under_load(settings: Settings, mortal_redis: Stack, loss: str) -> None:
    """Consumers see only duplicates, and every published message is delivered."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, mirror_interval=timedelta(seconds=0.1)))
    async with opened(settings) as (api, _):
        await shop(api, queues=4)
        seen: set[str] = set()

        async def consume() -> None:
            while len(seen) < 400:
                messages = await take(api, max=8, wait=1)
                seen.update(bodies(messages))
                await api.post(
                    "/v1/groups/workers/ack", json={"receipts": [message["receipt"] for message in messages]}
                )

        async with asyncio.timeout(60), asyncio.TaskGroup() as work:
            for _ in range(4):
                work.create_task(consume())
            for turn in range(4):
                await publish(api, *(f"{turn} {number}" for number in range(100)))
                await lose(mortal_redis, loss)

        assert len(seen) == 400


async def test_broadcast_clients_are_registered_again_with_a_notice(settings: Settings, mortal_redis: Stack) -> None:
    """Their positions were only in Redis. They jump to the end, and the response reports it."""
    async with opened(settings) as (api, _):
        await shop(api, mode="broadcast", start="earliest")
        await publish(api, "a")
        first = await receive(api, clientId="screen", max=10)
        known = await receive(api, clientId="screen", max=10)

        await lose(mortal_redis, "flushed")
        again = await receive(api, clientId="screen", max=10)

        assert [response.get("registered", False) for response in (first, known, again)] == [True, False, True]
        assert bodies(again["messages"]) == ["a"]


@MODES
async def test_lag_and_seek_find_a_group_at_its_mirrored_position(
    settings: Settings, mortal_redis: Stack, mode: str
) -> None:
    """They must not need a receive first."""
    async with opened(settings) as (api, _):
        await shop(api, mode=mode)
        await publish(api, "a", "b", "c")

        await lose(mortal_redis, "flushed")
        seen = await counts(api)
        await lose(mortal_redis, "flushed")
        planned = await operate(api, "seek", to="latest", dryRun=True)
        await lose(mortal_redis, "flushed")
        await operate(api, "seek", to="latest")

        assert seen == (3, 0, 0)
        assert sum(queue["skipped"] for queue in planned["queues"]) == 3
        assert await counts(api) == (0, 0, 0)


async def test_pause_and_rate_limit_survive(settings: Settings, mortal_redis: Stack) -> None:
    """They are control data: lost lease state must not deliver the messages of a paused group."""
    async with opened(settings) as (api, _):
        await shop(api, rateLimit={"rate": 1, "burst": 3})
        await publish(api, *range(10))
        await operate(api, "pause")

        await lose(mortal_redis, "flushed")
        paused = await take(api, max=10)
        await operate(api, "resume")
        limited = await take(api, max=10)

        assert paused == []
        assert len(limited) == 3


async def test_a_queue_stays_closed_until_its_mirror_can_be_read(
    settings: Settings, mortal_redis: Stack, pair: Stack
) -> None:
    """Its position is unknown while the broker is down. A guess would lose or repeat messages."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, cluster="pair"))
    async with opened(settings) as (api, gateway), opened(settings) as (other, _):
        await shop(api, queues=2)
        old = [f"old {number}" for number in range(20)]
        await _publish_singly(api, old)
        await _drain(api, len(old))
        assert await take(other, max=100) == []
        await gateway.mirror.run_once()
        new = [f"new {number}" for number in range(20)]
        await _publish_singly(api, new)
        # Not killed: a broker writes offsets down every five seconds, and what it forgets comes again.
        await asyncio.to_thread(pair.stop, "broker-b")
        await lose(mortal_redis, "flushed")

        without = await take(api, max=100, wait=LONG)
        waiting = asyncio.create_task(take(other, max=100, wait=LONG))
        await asyncio.to_thread(pair.start, "broker-b")
        back = await waiting

        assert {message["queue"].partition(":")[0] for message in without} == {"broker-a"}
        assert {message["queue"].partition(":")[0] for message in back} == {"broker-b"}
        assert sorted(bodies(without + back)) == sorted(new)


async def _publish_singly(api: httpx.AsyncClient, contents: list[str]) -> None:
    """Publish without keys, one by one: a batch would be stored in one queue, these are spread over all."""
    for body in contents:
        await publish(api, body)


async def _drain(api: httpx.AsyncClient, count: int) -> None:
    while count:
        messages = await take(api, max=100, wait=LONG)
        await ack(api, *messages)
        count -= len(messages)
