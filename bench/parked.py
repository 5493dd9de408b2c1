"""Parked receives: the wake-up latency, and the cost of ten thousand parked clients."""

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from typing import Any

import httpx
import processes
import uvloop

from mqgate import bootstrap
from mqgate.settings import Settings, SqliteSettings

_WAKES = 500
_PARKED = 10_000


def wake(table_type: Any) -> None:
    table = table_type(
        "wake",
        "One parked client, one message at a time on a random queue of 8: publish sent to message received",
        ("wake-ups", "messages", "p50 ms", "p99 ms", "delivered at the first answer"),
    )
    for is_waking in (True, False):
        latencies, first = uvloop.run(_wake(is_waking=is_waking, count=_WAKES if is_waking else 20))
        ordered = sorted(latencies)
        p99 = ordered[int(len(ordered) * 0.99)]
        table.add("on" if is_waking else "off", len(ordered), statistics.median(ordered) * 1000, p99 * 1000, first)
    table.write()


async def _wake(*, is_waking: bool, count: int) -> tuple[list[float], int]:
    settings = Settings(sqlite=SqliteSettings(directory=tempfile.mkdtemp(prefix="mqgate-bench-")))
    latencies: list[float] = []
    first = 0
    async with bootstrap.gateway(settings) as gateway:
        gateway.long_poll._is_waking = is_waking  # noqa: SLF001 - switched off only for comparison
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=30) as client:
            await client.put("/v1/topics/bench", json={"queues": 8})
            await client.put("/v1/groups/bench", json={"topic": "bench"})
            receipts: list[str] = []
            for number in range(count):
                body = {"wait": 2, "ack": receipts}
                waiting = asyncio.create_task(client.post("/v1/groups/bench/receive", json=body))
                while gateway.long_poll.parked < 1:  # noqa: ASYNC110 - parking sets no event
                    await asyncio.sleep(0.0005)
                began = time.perf_counter()
                key = f"key-{random.random()}"
                await client.post("/v1/topics/bench/messages", json={"body": str(number), "key": key})
                messages = (await waiting).json()["messages"]
                latencies.append(time.perf_counter() - began)
                first += len(messages)
                receipts = [each["receipt"] for each in messages]
    return latencies, first


def idle(table_type: Any) -> None:
    table = table_type(
        "parked",
        f"{_PARKED:,} parked polls in one process",
        ("parked", "idle CPU % of a core", "memory KiB each", "woken by one publish", "answer ms"),
    )
    server = processes.gateway()
    processes.register(server, "topics/bench")
    processes.register(server, "groups/bench", topic="bench")
    table.add(_PARKED, *uvloop.run(_park(server)))
    server.stop()
    table.write()


async def _park(server: processes.Server) -> tuple[float, float, int, float]:
    body = json.dumps({"wait": 60, "max": 1}).encode()
    request = (
        f"POST /v1/groups/bench/receive HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )
    before = processes.memory_bytes(server.pid)
    answered: list[float] = []

    class Poll(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.write(request)  # type: ignore[attr-defined]

        def data_received(self, _data: bytes) -> None:
            answered.append(time.perf_counter())

    loop = asyncio.get_running_loop()
    for _ in range(_PARKED):
        await loop.create_connection(Poll, "127.0.0.1", server.port)
    async with httpx.AsyncClient(base_url=server.url) as client:
        while True:
            metrics = (await client.get("/metrics")).text
            if f"mqgate_parked_requests {float(_PARKED)}" in metrics:
                break
            await asyncio.sleep(0.2)
        memory = (processes.memory_bytes(server.pid) - before) / _PARKED / 1024
        used = processes.cpu_seconds(server.pid)
        await asyncio.sleep(5)
        idle_cpu = (processes.cpu_seconds(server.pid) - used) / 5 * 100
        answered.clear()
        began = time.perf_counter()
        await client.post("/v1/topics/bench/messages", content=b"one")
        await asyncio.sleep(1)
        return idle_cpu, memory, len(answered), (answered[0] - began) * 1000 if answered else float("nan")


if __name__ == "__main__":
    sys.exit("run bench/run.py parked")
