"""Gateways whose clocks are ten minutes ahead and behind: shared state uses the clocks of the stores."""

import base64
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx
import psycopg
import pytest
from message_calls import Json, bodies, outcome, publish, put, receive, send, take
from sides import on_rocketmq

from mqgate.core.times import parse_instant
from mqgate.settings import Settings
from mqgate.stack import Stack
from mqgate.testing.server_process import ServerProcess
from production_set import as_environment, on_production
from skewed_clock import skewed

pytestmark = pytest.mark.slow
OFF_BY = timedelta(minutes=10)
LONG = 30


class Gateways(NamedTuple):
    right: httpx.AsyncClient
    ahead: httpx.AsyncClient
    behind: httpx.AsyncClient


@contextmanager
def serving(settings: Settings, directory: Path, off_by: timedelta) -> Iterator[str]:
    """A gateway in its own process, whose clock is off by this much."""
    server = ServerProcess(directory, **as_environment(settings), **skewed(off_by)).start()
    try:
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="module")
def urls(
    rocketmq: Stack, redis: Stack, postgres: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """Three gateways for all tests of this file, because they take seconds to start."""
    home = tmp_path_factory.mktemp("skewed")
    with on_production(Settings(), rocketmq, redis, postgres) as settings, ExitStack() as stack:
        sides = [serving(settings, home / str(off_by), off_by) for off_by in (timedelta(0), OFF_BY, -OFF_BY)]
        yield [stack.enter_context(side) for side in sides]


@pytest.fixture
async def gateways(urls: list[str]) -> AsyncIterator[Gateways]:
    async with AsyncExitStack() as stack:
        clients = [httpx.AsyncClient(base_url=url, timeout=60) for url in urls]
        yield Gateways(*[await stack.enter_async_context(client) for client in clients])


def when(entry: Json, member: str) -> datetime:
    return parse_instant(entry[member], member)


def is_now(instant: datetime) -> bool:
    """Return whether an instant is the current one by the real clock of the servers. Tolerate a busy machine."""
    return abs(instant - datetime.now(UTC)) < OFF_BY / 4


async def test_leases_use_the_clock_of_redis(gateways: Gateways) -> None:
    """Invariant 5: leases do not overlap or end early, and a parked receive is woken in time."""
    await put(gateways.right, "topics/orders", queues=1)
    await put(gateways.right, "groups/workers", topic="orders", mode="queue", visibility="1m", backoff=["1s"])
    own = [(await publish(api, "x"))[0] for api in gateways]
    assert [round((when(message, "storedAt") - datetime.now(UTC)) / OFF_BY) for message in own] == [0, 1, -1]

    for holder in gateways:
        lease = (await receive(holder, max=1, wait=LONG))["lease"]
        others = [await receive(api) for api in gateways]
        assert is_now(when(lease, "leasedUntil") - timedelta(minutes=1))
        assert [response["state"] for response in others] == ["busy"] * 3
        assert await outcome(gateways.right, "ack", lease["receipt"]) == (200, "applied")

    await publish(gateways.right, "left alone")
    ended = (await receive(gateways.ahead, visibility="1s", wait=LONG))["lease"]
    for waiting in (gateways.behind, gateways.ahead, gateways.right):
        began = time.monotonic()
        lease = (await receive(waiting, visibility="2s", wait=LONG))["lease"]
        assert time.monotonic() - began < LONG / 2
        assert when(lease, "leasedUntil") - timedelta(seconds=2) >= when(ended, "leasedUntil") + timedelta(seconds=1)
        ended = lease


async def test_rate_limits_use_the_clock_of_redis(gateways: Gateways) -> None:
    """A gateway ahead finds no extra tokens, and one behind removes none."""
    right, ahead, behind = gateways
    await put(right, "topics/limited", queues=1)
    await put(right, "groups/slow", topic="limited", rateLimit={"rate": 0.01, "burst": 5})
    await put(right, "producers/shop", topic="limited", rateLimit={"rate": 0.01, "burst": 7})

    sent = [
        (await api.post("/v1/topics/limited/messages?producer=shop", json={"body": "x"})).status_code
        for api in (behind, ahead, right) * 3
    ]
    taken = [len(await take(api, "slow", max=1, wait=1)) for api in (behind, ahead, right) * 3]

    assert sent == [201] * 7 + [429] * 2
    assert taken == [1] * 5 + [0] * 4


async def test_delays_use_the_clock_of_postgresql(gateways: Gateways) -> None:
    """Whichever gateway schedules it: the message is due at its time, and any gateway dispatches it."""
    await put(gateways.right, "topics/later", queues=1)
    await put(gateways.right, "groups/patient", topic="later")

    for name, api in gateways._asdict().items():
        scheduled = (await send(api, "later", body=name, delay="2s")).json()
        messages = await take(gateways.right, "patient", wait=LONG)
        assert bodies(messages) == [name]
        assert is_now(when(scheduled, "deliverAt"))
        assert when(messages[0], "storedAt") >= when(scheduled, "deliverAt")


@on_rocketmq
async def test_receipt_keys_use_the_clock_of_postgresql(
    settings: Settings, live_api: httpx.AsyncClient, tmp_path: Path
) -> None:
    """A key is created, signs and is deleted by that clock, and receipts of all gateways stay valid."""
    await put(live_api, "topics/orders", queues=1)
    await put(live_api, "groups/workers", topic="orders")
    await publish(live_api, *range(3))

    # Not old enough, but for a clock that is ahead; then old enough, but not for one that is behind.
    await execute(settings, AGED.format("30 days' + interval '5 minutes"))
    first = await taken_at(settings, tmp_path / "ahead", OFF_BY)
    only = await execute(settings, "SELECT number FROM receipt_key")
    await execute(settings, AGED.format("30 days 5 minutes"))
    second = await taken_at(settings, tmp_path / "behind", -OFF_BY)
    keys = await execute(settings, "SELECT number FROM receipt_key")
    third = await taken_at(settings, tmp_path / "ahead", OFF_BY)

    assert (len(only), len(keys)) == (1, 2)
    assert len({base64.urlsafe_b64decode(message["receipt"][:4])[:2] for message in (first, second, third)}) == 1
    assert [await outcome(live_api, "ack", receipt) for receipt in (first, second, third)] == [(200, "applied")] * 3


AGED = "UPDATE receipt_key SET created_at = clock_timestamp() - interval '{}' RETURNING number"


async def execute(settings: Settings, sql: str) -> list[tuple[int]]:
    async with await psycopg.AsyncConnection.connect(settings.postgres.url, autocommit=True) as connection:
        await connection.execute(f'SET search_path TO "{settings.postgres.schema}"'.encode())
        return await (await connection.execute(sql.encode())).fetchall()


async def taken_at(settings: Settings, directory: Path, off_by: timedelta) -> Json:
    """Receive a message at a gateway that only this test uses."""
    with serving(settings, directory, off_by) as url:
        async with httpx.AsyncClient(base_url=url) as api:
            (message,) = await take(api, max=1, wait=LONG)
    return message
