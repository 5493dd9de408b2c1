"""`mqgate serve --workers 2` as it is deployed: messages on RocketMQ, leases on Redis, control data on PostgreSQL."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from supervised import PATIENCE, Supervised, until

from mqgate.stack import Stack

pytestmark = pytest.mark.slow
CLIENTS = 4


@pytest.fixture
def names() -> dict[str, str]:
    suffix = uuid4().hex[:12]
    return {"topic": f"orders-{suffix}", "group": f"billing-{suffix}", "schema": f"schema_{suffix}"}


@pytest.fixture
def config(tmp_path: Path, names: dict[str, str], pair: Stack, redis: Stack, postgres: Stack) -> Iterator[Path]:
    file = tmp_path / "mqgate.toml"
    file.write_text(
        f"""
        [messages]
        engine = "rocketmq"
        [logging]
        format = "json"
        [rocketmq]
        name_servers = ["{pair.name_server}"]
        cluster = "pair"
        [leases]
        engine = "redis"
        [redis]
        url = "{redis.redis_url}"
        prefix = "{names["schema"]}"
        [control]
        engine = "postgres"
        [postgres]
        url = "{postgres.postgres_url}"
        schema = "{names["schema"]}"
        [[topic]]
        name = "{names["topic"]}"
        queues = 4
        [[group]]
        name = "{names["group"]}"
        topic = "{names["topic"]}"
        start = "earliest"
        """,
        "utf-8",
    )
    yield file
    with psycopg.connect(postgres.postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {names['schema']} CASCADE")


@pytest.fixture
def served(tmp_path: Path, config: Path) -> Iterator[Supervised]:
    it = Supervised(tmp_path, workers=2)
    mqgate = (sys.executable, "-P", "-m", "mqgate.cli.main", "serve")
    it.program = (*mqgate, "--workers", "2", "--port", str(it.port), "--config", str(config))
    it.greeting = "mqgate listens on "
    it.start()
    yield it
    it.close()


def _scrape(served: Supervised) -> str:
    """Return the metrics that a new connection gets, from whichever worker accepts it."""
    return httpx.get(f"{served.url}/metrics", timeout=PATIENCE).text


def _served(text: str) -> int:
    """Return the number of requests for liveness, over all workers."""
    counts = re.findall(r'^mqgate_requests_total\{operation="livez",.*\} (\S+)$', text, re.MULTILINE)
    return int(sum(map(float, counts)))


def test_both_workers_serve_the_declared_entries_and_one_greeting_is_printed(served, names):
    """Every worker registers the entries of the file; the second one must accept existing entries."""
    seen = set(re.findall(r'worker="(\d+)"', _scrape(served)))
    found = {httpx.get(f"{served.url}/v1/groups/{names['group']}").json()["topic"] for _ in range(10)}

    assert seen == {"1", "2"}
    assert found == {names["topic"]}
    assert len([line for line in served.printed() if line.startswith(served.greeting)]) == 1
    assert [event["worker"] for event in served.events("entry registered")] == [1, 1]
    served.tell(signal.SIGTERM)
    assert served.ended() == 0


def test_every_scrape_counts_the_requests_of_all_workers(served):
    """Which worker accepts a connection is random, and a counter that falls and rises again would be a restart."""
    for _ in range(40):
        httpx.get(f"{served.url}/livez", timeout=PATIENCE).raise_for_status()

    texts = [_scrape(served) for _ in range(10)]

    assert {_served(text) for text in texts} == {40}
    assert all('mqgate_worker_up{worker="1"} 1.0' in text for text in texts)
    assert all('mqgate_worker_up{worker="2"} 1.0' in text for text in texts)


async def test_a_rolling_restart_fails_no_publish_and_no_receive_and_loses_nothing(served, names):
    """Operators upgrade under full load."""
    load = _Load(served.url, names)
    async with load.running():
        await asyncio.to_thread(until, lambda: len(load.received) > 50)
        served.tell(signal.SIGHUP)
        await asyncio.to_thread(until, lambda: served.events("rolling restart ended"))

    assert load.failures == []
    assert load.received == load.published


class _Load:
    """Publishers and consumers with persistent connections that record all messages."""

    def __init__(self, url: str, names: dict[str, str]) -> None:
        self._url = url
        self._names = names
        self._is_over = asyncio.Event()
        self.published: set[str] = set()
        self.received: set[str] = set()
        self.failures: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the load during the block, then consume all published messages."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._publish())
                group.create_task(self._consume())
            yield
            self._is_over.set()

    async def _publish(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=PATIENCE) as client:
            while not self._is_over.is_set():
                body = uuid4().hex
                if await self._call(client, f"/v1/topics/{self._names['topic']}/messages", content=body) is not None:
                    self.published.add(body)

    async def _consume(self) -> None:
        path = f"/v1/groups/{self._names['group']}"
        async with httpx.AsyncClient(base_url=self._url, timeout=PATIENCE) as client:
            while not self._is_over.is_set() or self.published - self.received:
                response = await self._call(client, f"{path}/receive", json={"max": 32, "wait": 1})
                receipts = [message["receipt"] for message in response["messages"]] if response else []
                self.received |= {message["body"] for message in response["messages"]} if response else set()
                if receipts:
                    await self._call(client, f"{path}/ack", json={"receipts": receipts})

    async def _call(self, client: httpx.AsyncClient, path: str, **request: Any) -> Any:
        try:
            response = await client.post(path, **request)
            return response.raise_for_status().json()
        except httpx.HTTPError as error:
            self.failures.append(f"{path}: {error!r}")
            return None
