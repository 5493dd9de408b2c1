"""The distributed deployment under load: RocketMQ for messages, Redis for leases, PostgreSQL for control data.

A gateway with one worker, one with two, the Apache Java client at the broker, and a server that makes only the round
trips of a fetch (floor.py) take turns on one machine. The load generators share it, so the CPU per request is more
significant than the throughput. Every round reads the backlog with a new group, so it is never exhausted.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import processes
import uvloop
from processes import cpu_seconds, machine_cpu
from production_report import TITLES, Case, Found, report

from mqgate.rocketmq import RocketMQClient
from mqgate.stack import BrokerSpec, Stack

ROUNDS = 3
SECONDS = 4.0
BACKLOG = 500_000
QUEUES = 8
BODY_BYTES = 300
WORKERS = (1, 2)
CLIENTS = (8, 64)
GENERATORS = 2
# Longer than a round: a client without a queue waits, as consumers do, instead of polling.
WAIT = "30"
BROKER = "broker-a"
JAVA_GROUP = "bench-java"
# The broker may use the second compiler stage.
_JAVA = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
_CONFIG = """
[messages]
engine = "rocketmq"
[rocketmq]
name_servers = ["{stack.name_server}"]
[leases]
engine = "redis"
[redis]
url = "{stack.redis_url}"
[control]
engine = "postgres"
[postgres]
url = "{stack.postgres_url}"
"""
CASES = tuple(Case(*each) for each in product(TITLES, WORKERS, CLIENTS))
FLOORS = tuple(Case("floor", 1, clients) for clients in CLIENTS)


def compare(table_type: Any) -> None:
    """Write the tables; for run.py."""
    with _stack() as stack, ExitStack() as ends:
        directory = Path(tempfile.mkdtemp(prefix="mqgate-bench-"))
        servers = {workers: _gateway(stack, directory, workers) for workers in WORKERS}
        for server in servers.values():
            ends.callback(server.stop)
        _fill(servers[1])
        uvloop.run(_prepare(stack.name_server))
        floor = _floor(stack)
        ends.callback(floor.stop)
        pull = processes.java("DirectPull", directory, stack.name_server, "filled", JAVA_GROUP)
        ends.callback(pull.stop)
        send = processes.java("DirectSend", directory, stack.name_server, "published", 64, SECONDS, BODY_BYTES)
        ends.callback(send.stop)
        java: dict[str, list[Found]] = {"publish": [], "pull": []}
        rounds: dict[Case, list[Found]] = {case: [] for case in (*CASES, *FLOORS)}
        # The first round measures compilers.
        for number in range(-1, ROUNDS):
            found = {"publish": _direct(send, stack), "pull": _direct(pull, stack)}
            measured = {case: _measure(case, servers[case.workers], stack, number) for case in CASES}
            measured |= {case: _measure(case, floor, stack, number) for case in FLOORS}
            if number >= 0:
                for name, some in java.items():
                    some.append(found[name])
                for case, some in rounds.items():
                    some.append(measured[case])
    report(
        table_type,
        f"RocketMQ, Redis and PostgreSQL: {BODY_BYTES}-byte bodies, {QUEUES} queues, {BACKLOG:,} messages of backlog",
        rounds,
        java,
    )


@contextmanager
def _stack() -> Iterator[Stack]:
    built = Stack(
        Path(tempfile.mkdtemp(prefix="mqgate-bench-stack-")), progress=lambda text: print(text, file=sys.stderr)
    )
    # PostgreSQL runs as another user if this process runs as root.
    built.directory.chmod(0o755)
    try:
        built.up([BrokerSpec(name=BROKER, java_options=_JAVA)], ("redis", "postgres"))
        yield built
    finally:
        built.down()


def _gateway(stack: Stack, directory: Path, workers: int) -> processes.Server:
    config = directory / f"{workers}.toml"
    config.write_text(_CONFIG.format(stack=stack))
    command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--config", str(config), "--workers", str(workers)]
    return processes.Server([*command, "--port"])


def _floor(stack: Stack) -> processes.Server:
    command = [sys.executable, str(processes.HERE / "floor.py"), stack.redis_url, stack.name_server]
    return processes.Server([*command, BROKER, "filled", str(QUEUES)], path="/")


def _fill(server: processes.Server) -> None:
    for topic in ("filled", "published"):
        processes.register(server, f"topics/{topic}", queues=QUEUES)
    stored = 0
    while stored < BACKLOG:
        stored += server.load("batch", 8, SECONDS, topic="filled")["messages"]


async def _prepare(name_server: str) -> None:
    client = RocketMQClient([name_server])
    await client.routes.brokers()
    for group in (JAVA_GROUP, "floor"):
        await client.admin.put_group(BROKER, group)
    await client.close()


def _direct(child: processes.Child, stack: Stack) -> Found:
    broker, all_before = cpu_seconds(stack.part(BROKER).pid), machine_cpu()
    child.begin()
    found = child.result()
    found["broker_cpu"] = cpu_seconds(stack.part(BROKER).pid) - broker
    return found | _others(found, machine_cpu() - all_before)


def _measure(case: Case, server: processes.Server, stack: Stack, number: int) -> Found:
    """Measure one round. Group modes use a new group each, which has the whole backlog."""
    group = f"{case.what}-{case.workers}-{case.clients}-{number + 1}"
    is_group = case.what in {"queue", "message"}
    if is_group:
        processes.register(server, f"groups/{group}", topic="filled", mode=case.what)
    parts = {"redis_cpu": stack.part("redis").pid, "broker_cpu": stack.part(BROKER).pid}
    before, all_before = {name: cpu_seconds(pid) for name, pid in parts.items()}, machine_cpu()
    options = {"topic": "published"} if case.what == "publish" else {"group": group, "wait": WAIT}
    scenario = "single" if case.what == "publish" else "receive"
    found = server.load(scenario, case.clients, SECONDS, generators=GENERATORS, **options)
    found |= {name: cpu_seconds(pid) - before[name] for name, pid in parts.items()}
    found |= _others(found, machine_cpu() - all_before)
    if is_group:
        httpx.delete(f"{server.url}/v1/groups/{group}", timeout=30).raise_for_status()
    return found


def _others(found: Found, in_all: float) -> Found:
    """Return the number of cores that other processes used."""
    ours = sum(found.get(name, 0.0) for name in ("cpu", "server_cpu", "redis_cpu", "broker_cpu"))
    return {"others": max(in_all - ours, 0.0) / found["seconds"]}
