"""The round trips of a receive on the distributed deployment, and of an idle gateway."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from message_calls import publish, put, receive
from sides import on_rocketmq

from mqgate import bootstrap
from mqgate.rocketmq.remoting.codes import RequestCode
from mqgate.rocketmq.transport import Connection
from mqgate.settings import Settings
from mqgate.stack import Stack
from redis_server import operator

pytestmark = on_rocketmq
TURNS = 20
# What a gateway asks a few times a second for all receives together: where queues end, who serves them, and whether a
# group has a private log by now.
SHARED = {
    RequestCode.GET_TOPIC_STATS,
    RequestCode.GET_ROUTE,
    RequestCode.GET_CLUSTER,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_KV_CONFIG,
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Disable the periodic work that is shared by all receives: the offset mirror and events."""
    own = replace(settings, rocketmq=replace(settings.rocketmq, mirror_interval=timedelta(hours=1)))
    return replace(own, events=replace(own.events, enabled=False))


@pytest.fixture
def requests_by_code(monkeypatch: pytest.MonkeyPatch) -> Counter[RequestCode]:
    """Count requests to brokers and name servers by their codes."""
    requests_by_code: Counter[RequestCode] = Counter()
    send = Connection.send

    async def counted(self: Connection, head: bytes, *rest: Any) -> Any:
        # The connection completes the header with the opaque.
        requests_by_code[RequestCode(json.loads(head + b"0}")["code"])] += 1
        return await send(self, head, *rest)

    monkeypatch.setattr(Connection, "send", counted)
    return requests_by_code


@pytest.mark.parametrize("mode", ["queue", "message"])
async def test_a_receive_with_carried_acks_is_one_script_and_one_pull_per_range(
    live: bootstrap.Gateway, live_api: httpx.AsyncClient, requests_by_code: Counter[RequestCode], mode: str
) -> None:
    """Settle, choose and lease are one step. The pull reads what was granted."""
    await put(live_api, "topics/orders", queues=2)
    await put(live_api, "groups/workers", topic="orders", mode=mode)
    for _ in range(4):
        await publish(live_api, *range(100))
    # Until the gateway knows the queues, and the store the group.
    responses = [await receive(live_api, max=4)]
    trips = live.leases._redis.round_trips
    requests_by_code.clear()

    for _ in range(TURNS):
        last = responses[-1]
        carried = (
            [last["lease"]["receipt"]] if mode == "queue" else [message["receipt"] for message in last["messages"]]
        )
        responses.append(await receive(live_api, max=4, ack=carried))

    given = responses[1:]
    assert all(response["messages"] for response in given)
    assert {result["outcome"] for response in given for result in response["acked"]} == {"applied"}
    assert live.leases._redis.round_trips - trips == TURNS
    pulls = sum(len({message["queue"] for message in response["messages"]}) for response in given)
    assert requests_by_code[RequestCode.PULL_MESSAGE] == pulls
    assert set(requests_by_code) - SHARED == {RequestCode.PULL_MESSAGE}


@pytest.fixture
async def idle(settings: Settings, mortal_redis: Stack) -> AsyncIterator[bootstrap.Gateway]:
    """A gateway that is the only client of a Redis, with groups that no client uses."""
    own = replace(settings, redis=replace(settings.redis, url=mortal_redis.redis_url))
    events = replace(own.events, enabled=True, lag_interval=timedelta(seconds=0.5))
    own = replace(own, events=events, rocketmq=replace(own.rocketmq, mirror_interval=timedelta(seconds=1)))
    async with bootstrap.gateway(own) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as api:
            await put(api, "topics/orders", queues=2)
            await put(api, "groups/workers", topic="orders")
            await publish(api, "waiting")
        yield gateway


async def test_an_idle_gateway_sends_redis_only_pings(idle: bootstrap.Gateway, mortal_redis: Stack) -> None:
    """A PING on the subscription after 15 s of silence is the only traffic."""
    with operator(mortal_redis.redis_url) as redis:

        def commands() -> Counter[str]:
            stats = redis.info("commandstats")
            return Counter({name: stats["calls"] for name, stats in stats.items() if name != "cmdstat_info"})

        # A group that was just registered is looked at once or twice more: its lag, its place in the mirror.
        before, now = None, commands()
        while before != now:
            await asyncio.sleep(3)
            before, now = now, commands()
        trips = idle.leases._redis.round_trips
        await asyncio.sleep(4)

        assert set(commands() - now) <= {"cmdstat_ping"}
        assert idle.leases._redis.round_trips == trips
