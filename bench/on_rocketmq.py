"""The gateway on RocketMQ, compared with direct calls and with the Apache Python client through the proxy.

All use the same two brokers, in one run, with interleaved rounds.
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import processes
import uvloop

from mqgate import bootstrap
from mqgate.rocketmq import RocketMQClient
from mqgate.settings import MessageSettings, RocketMQSettings, Settings, SqliteSettings
from mqgate.stack import BrokerSpec, Stack

ROUNDS = 3
SECONDS = 3.0
WAKES = 500
# The first messages of a new broker measure the class loader of Java.
WARM_UP = 50
# The brokers of a benchmark may use the second compiler stage.
_JAVA = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
Found = dict[str, Any]


@contextmanager
def stack(*parts: Any) -> Iterator[Stack]:
    directory = Path(tempfile.mkdtemp(prefix="mqgate-bench-stack-"))
    built = Stack(directory, progress=lambda text: print(text, file=sys.stderr))
    brokers = [BrokerSpec(name=name, java_options=_JAVA) for name in ("broker-a", "broker-b")]
    try:
        built.up(brokers, parts)
        yield built
    finally:
        built.down()


def gateway(server: str) -> processes.Server:
    directory = Path(tempfile.mkdtemp(prefix="mqgate-bench-"))
    config = directory / "mqgate.toml"
    config.write_text(f'[messages]\nengine = "rocketmq"\n[rocketmq]\nname_servers = ["{server}"]\n')
    command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--config", str(config)]
    return processes.Server([*command, "--data-dir", str(directory / "data"), "--port"])


def child(program: str, *arguments: object) -> Found:
    command = [sys.executable, str(processes.HERE / program), *map(str, arguments)]
    lines = subprocess.check_output(command, stderr=subprocess.DEVNULL).splitlines()
    found: Found = json.loads(lines[-1])
    return found


class Case(NamedTuple):
    """A case that is measured with every client: its concurrency, and the threads of the official client."""

    scenario: str
    title: str
    at_once: int
    official: tuple[str, int] | None


CASES = (
    Case("single", "publish", 64, ("send", 16)),
    Case("batch", "publish, batches of 100", 8, None),
    Case("receive", "receive and ack of 32, queue mode", 8, ("receive", 8)),
)


def compare(table_type: Any) -> None:
    table = table_type(
        "rocketmq",
        "On RocketMQ, 300-byte bodies, two brokers, asynchronous flush",
        ("what", "how", "messages/s", "ratio to direct", "ratio to official", "gateway CPU us per message", "errors"),
    )
    with stack("proxy") as cluster:
        server = gateway(cluster.name_server)
        try:
            processes.register(server, "topics/bench", queues=16)
            processes.register(server, "topics/filled", queues=16)
            processes.register(server, "groups/bench", topic="filled", mode="queue")
            processes.register(server, "groups/official", topic="filled")
            server.load("batch", 8, SECONDS * 4, topic="filled")
            for case in CASES:
                _compare(table, case, cluster, server)
            table.write()
            _added(table_type, cluster, server)
        finally:
            server.stop()


def _compare(table: Any, case: Case, cluster: Stack, server: processes.Server) -> None:
    topic = "filled" if case.scenario == "receive" else "bench"
    ways: dict[str, list[Found]] = {"direct": [], "gateway": [], "official": []}
    for _ in range(ROUNDS):
        options = json.dumps({"topic": topic})
        ways["direct"].append(child("direct.py", cluster.name_server, case.scenario, case.at_once, SECONDS, options))
        ways["gateway"].append(server.load(case.scenario, case.at_once, SECONDS, topic=topic))
        if case.official is not None:
            name, threads = case.official
            ways["official"].append(child("official.py", cluster.address("proxy"), name, threads, SECONDS, topic))
    rates = {
        way: statistics.median(each["messages"] / each["seconds"] for each in some)
        for way, some in ways.items()
        if some
    }
    for way, rate in rates.items():
        cpu = [each["server_cpu"] / max(each["messages"], 1) * 1e6 for each in ways[way] if "server_cpu" in each]
        errors = sum(each.get("errors", 0) for each in ways[way])
        official = rate / rates["official"] if rates.get("official") else ""
        cost = statistics.median(cpu) if cpu else ""
        table.add(case.title, way, f"{rate:,.0f}", rate / rates["direct"], official, cost, errors)


def _added(table_type: Any, cluster: Stack, server: processes.Server) -> None:
    """Measure the latency that the gateway adds for a single caller."""
    table = table_type(
        "rocketmq_latency",
        "On RocketMQ, one caller: what the gateway adds",
        ("what", "direct p50 ms", "gateway p50 ms", "added p50 ms"),
    )
    for case in CASES:
        topic = "filled" if case.scenario == "receive" else "bench"
        options = json.dumps({"topic": topic})
        pairs = [
            (
                child("direct.py", cluster.name_server, case.scenario, 1, SECONDS, options)["p50"],
                server.load(case.scenario, 1, SECONDS, topic=topic)["p50"],
            )
            for _ in range(ROUNDS)
        ]
        direct, through = (statistics.median(each) for each in zip(*pairs, strict=True))
        table.add(case.title, direct, through, through - direct)
    table.write()


def wake(table_type: Any) -> None:
    table = table_type(
        "rocketmq_wake",
        "One parked client, two brokers, 16 queues; messages sent directly to a random queue",
        ("messages", "p50 ms", "p99 ms", "empty answers", "idle CPU % of a core", "watch requests a minute, idle"),
    )
    with stack() as cluster:
        table.add(*uvloop.run(_wake(cluster.name_server)))
    table.write()


async def _wake(name_server: str) -> tuple[int, float, float, int, float, float]:
    settings = Settings(
        sqlite=SqliteSettings(directory=tempfile.mkdtemp(prefix="mqgate-bench-")),
        messages=MessageSettings(engine="rocketmq"),
        rocketmq=RocketMQSettings(name_servers=(name_server,)),
    )
    latencies: list[float] = []
    empty = 0
    sender = RocketMQClient([name_server])
    await sender.routes.brokers()
    async with bootstrap.gateway(settings) as gateway:
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=90) as client:
            await client.put("/v1/topics/bench", json={"queues": 16})
            await client.put("/v1/groups/bench", json={"topic": "bench"})
            receipts: list[str] = []
            for number in range(WARM_UP + WAKES):
                body = {"wait": 20, "ack": receipts}
                waiting = asyncio.create_task(client.post("/v1/groups/bench/receive", json=body))
                while gateway.long_poll.parked < 1:  # noqa: ASYNC110 - parking sets no event
                    await asyncio.sleep(0.0005)
                began = time.perf_counter()
                broker, queue = random.choice(("broker-a", "broker-b")), random.randrange(8)
                await sender.messages.send(broker, "bench", queue, b"wake", {"UNIQ_KEY": f"wake-{number}"})
                messages = (await waiting).json()["messages"]
                if number >= WARM_UP:
                    latencies.append(time.perf_counter() - began)
                empty += not messages
                receipts = [each["receipt"] for each in messages]
            waiting = asyncio.create_task(client.post("/v1/groups/bench/receive", json={"wait": 40, "ack": receipts}))
            await asyncio.sleep(3)
            asked, cpu, began = await _watched(client), time.process_time(), time.perf_counter()
            await asyncio.sleep(30)
            passed = time.perf_counter() - began
            idle = (time.process_time() - cpu) / passed * 100
            asked = (await _watched(client) - asked) / passed * 60
            await waiting
    await sender.close()
    ordered = sorted(latencies)
    p99 = ordered[int(len(ordered) * 0.99)] * 1000
    return len(ordered), statistics.median(ordered) * 1000, p99, empty, idle, asked


async def _watched(client: httpx.AsyncClient) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("mqgate_watch_requests_total"))
