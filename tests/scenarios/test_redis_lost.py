"""Redis loses everything, or dies: groups go on where the brokers say they stood; duplicates, never loss."""

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
    """The production set on a Redis of the module's own, which is lost; mirrored only when a test says so."""
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
async def test_a_group_goes_on_from_its_mirror_under_a_new_incarnation(
    settings: Settings, mortal_redis: Stack, mode: str, loss: str
) -> None:
    """What was acked since the mirror was written comes again; receipts of before are gone, and change nothing."""
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


def receipt_of(answer: Json) -> Any:
    """Of a batch, or of its one message."""
    return answer["lease"]["receipt"] if answer.get("lease") else answer["messages"][0]["receipt"]


async def settle_batch(api: httpx.AsyncClient, answer: Json) -> None:
    if answer.get("lease"):
        assert await outcome(api, "ack", receipt_of(answer)) == (200, "applied")
    else:
        await ack(api, *answer["messages"])


@LOSSES
async def test_nothing_is_lost_when_it_happens_under_work(settings: Settings, mortal_redis: Stack, loss: str) -> None:
    """Consumers notice nothing but duplicates; every message that was published is delivered."""
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


async def test_broadcast_clients_register_anew_and_are_told(settings: Settings, mortal_redis: Stack) -> None:
    """Their places lay in Redis alone: a jump, but not a silent one."""
    async with opened(settings) as (api, _):
        await shop(api, mode="broadcast", start="earliest")
        await publish(api, "a")
        first = await receive(api, clientId="screen", max=10)
        known = await receive(api, clientId="screen", max=10)

        await lose(mortal_redis, "flushed")
        anew = await receive(api, clientId="screen", max=10)

        assert [answer.get("registered", False) for answer in (first, known, anew)] == [True, False, True]
        assert bodies(anew["messages"]) == ["a"]


@MODES
async def test_who_only_looks_finds_a_group_where_it_stood(settings: Settings, mortal_redis: Stack, mode: str) -> None:
    """Lag and seek need nobody to receive first."""
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


async def test_settings_survive(settings: Settings, mortal_redis: Stack) -> None:
    """Pause and rate limit lie in control data: a lost lease state must not open the flood-gates."""
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


async def test_a_queue_whose_broker_is_down_stays_closed_until_its_mirror_can_be_read(
    settings: Settings, mortal_redis: Stack, pair: Stack
) -> None:
    """Nobody can tell where the group stood in it: to guess would be loss or a flood; nor can another gateway."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, cluster="pair"))
    async with opened(settings) as (api, gateway), opened(settings) as (other, _):
        await shop(api, queues=1)
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
    """A batch without keys goes to one queue; these go to all in turn."""
    for body in contents:
        await publish(api, body)


async def _drain(api: httpx.AsyncClient, count: int) -> None:
    while count:
        messages = await take(api, max=100, wait=LONG)
        await ack(api, *messages)
        count -= len(messages)
