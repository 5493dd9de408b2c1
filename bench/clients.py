"""The client library compared with plain HTTP calls, in one run, with interleaved rounds.

Raw calls use the same HTTP library, without retries, keys, futures or leases.
"""

import asyncio
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from mqgate.client import Client, Publisher, Worker
from mqgate.testing.server_process import ServerProcess

BATCH, SENDERS, MESSAGES = 500, 4, 20_000
ROUNDS = 3
BODY = "x" * 300


def compare(table_type: type[Any]) -> None:
    """Measure, and write one table."""
    with tempfile.TemporaryDirectory() as directory:
        server = ServerProcess(Path(directory)).start()
        rounds: dict[str, list[float]] = {"raw publish": [], "Publisher": [], "raw receive": [], "Worker": []}
        with Client(server.url) as client:
            client.topics.put("bench", {})
            for number in range(ROUNDS):
                rounds["raw publish"].append(_raw_publish(server.url, f"run-{number}"))
                rounds["Publisher"].append(_publisher(client))
                for name, consume in (("raw receive", _raw_receive), ("Worker", _worker)):
                    group = f"{name.replace(' ', '-')}-{number}"
                    client.groups.put(group, {"topic": "bench", "start": "latest", "maxInFlight": 100_000})
                    _publisher(client)
                    rounds[name].append(consume(server.url, group))
        server.stop()
    title = f"Client library, 300-byte bodies, batches of {BATCH}"
    table = table_type("client", title, ("what", "per second", "of raw calls"))
    for name, baseline in _BASELINES:
        ratio = statistics.median(own / base for own, base in zip(rounds[name], rounds[baseline], strict=True))
        table.add(name, f"{statistics.median(rounds[name]):,.0f}", ratio)
    table.write()


_BASELINES = (
    ("raw publish", "raw publish"),
    ("Publisher", "raw publish"),
    ("raw receive", "raw receive"),
    ("Worker", "raw receive"),
)


def _raw_publish(url: str, name: str) -> float:
    """Publish with idempotency keys, as the client library does."""

    def publish(sender: int) -> None:
        with httpx2.Client(base_url=url) as http:
            for batch in range(MESSAGES // SENDERS // BATCH):
                keys = [f"{name}-{sender}-{batch}-{number}" for number in range(BATCH)]
                messages = [{"body": BODY, "idempotencyKey": key} for key in keys]
                http.post("/v1/topics/bench/messages", json={"messages": messages}).raise_for_status().json()

    return _timed(lambda: _in_threads(publish))


def _in_threads(target: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=target, args=(number,)) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _publisher(client: Client) -> float:
    def publish() -> None:
        with Publisher(client, max_batch=BATCH, senders=SENDERS) as publisher:
            futures = [publisher.publish("bench", BODY) for _ in range(MESSAGES)]
        for future in futures:
            future.result(0)

    return _timed(publish)


def _raw_receive(url: str, group: str) -> float:
    async def receive() -> None:
        acks: list[str] = []
        left = MESSAGES
        async with httpx2.AsyncClient(base_url=url) as http:
            while left or acks:
                body = {"max": BATCH, "ack": acks}
                response = await http.post(f"/v1/groups/{group}/receive", json=body)
                messages = json.loads(response.content)["messages"]
                acks = [message["receipt"] for message in messages]
                left -= len(messages)

    return _timed(lambda: asyncio.run(receive()))


def _worker(url: str, group: str) -> float:
    worker = Worker(url, concurrency=8, prefetch=2 * BATCH)
    left = [MESSAGES]

    @worker.handler(group)
    async def handle(_message: Any) -> None:
        left[0] -= 1
        if not left[0]:
            worker.stop()

    return _timed(lambda: asyncio.run(worker.run_async()))


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return MESSAGES / (time.perf_counter() - began)
