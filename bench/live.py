"""Fetch and receive over a backlog and under live publishing, beside an earlier release and beside floor.py.

Every case runs with a backlog alone, with about 1,000 messages per second published to the same topic through another
gateway, and with as many published through the same gateway. In the cases without a backlog, the consumers keep up
with the publisher. CPU is counted per request that returned messages, so requests that find nothing are attributed to
those. If the same gateway publishes, its CPU includes the publishing. Its figure is therefore compared with that of
the case in which it publishes as much to a topic that nobody reads.
"""

import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import beside
import httpx
import processes
import uvloop

from mqgate.rocketmq import RocketMQClient
from mqgate.stack import BrokerSpec, Stack

ROUNDS = 3
SECONDS = 2.0
# More than one round consumes.
BACKLOG = 200_000
QUEUES = 8
RATE = "1000"
BROKER = "broker-a"
BASELINE = beside.RELEASE
TITLES = {"queue": "fetch, queue mode", "message": "receive, message mode"}
TRAFFIC = {
    "backlog": "backlog",
    "other": "backlog and 1,000/s, another gateway",
    "unrelated": "backlog; 1,000/s to another topic, the same gateway",
    "same": "backlog and 1,000/s, the same gateway",
    "tail": "1,000/s, another gateway, no backlog",
}
Found = dict[str, Any]


class Case(NamedTuple):
    mode: str
    traffic: str
    clients: int
    # A client without a wait pauses for 10 ms after an empty response.
    wait: int
    max: int = 32


class Gateways(NamedTuple):
    """The measured gateway of a release, and another one on the same topics."""

    measured: processes.Server
    other: processes.Server


CASES = (
    *(Case(*each) for each in product(TITLES, ("backlog", "other", "unrelated", "same"), (8, 64), (0, 30))),
    *(Case(mode, "tail", 8, 30) for mode in TITLES),
)


def compare(table_type: Any, cases: tuple[Case, ...] = CASES, rounds: int = ROUNDS) -> None:
    """Write the table; for run.py."""
    with ExitStack() as ends:
        source = ends.enter_context(beside.released())
        stack = started_stack(ends)
        releases = {"here": gateways(stack, ends, "here"), BASELINE: gateways(stack, ends, BASELINE, source)}
        floor = _floor(stack, ends)
        found: dict[tuple[str, Case], list[Found]] = {}
        floors: dict[int, list[Found]] = {8: [], 64: []}
        for number in range(-1, rounds):
            # The order alternates, so that neither always runs on the warmer machine.
            names = list(releases)[:: 1 if number % 2 else -1]
            for case, name in product(cases, names):
                measured = measure(stack, releases[name], case)
                if number >= 0:
                    found.setdefault((name, case), []).append(measured)
            for clients, measured_floors in floors.items():
                measured = _with_redis(stack, lambda n=clients: floor.load("receive", n, SECONDS))
                if number >= 0:
                    measured_floors.append(measured)
    _report(table_type, cases, found, floors)


def started_stack(ends: ExitStack) -> Stack:
    """Start the servers of the distributed deployment."""
    directory = Path(tempfile.mkdtemp(prefix="mqgate-bench-"))
    # PostgreSQL runs as another user if this process runs as root.
    directory.chmod(0o755)
    stack = Stack(directory, progress=lambda text: print(text, file=sys.stderr))
    ends.callback(stack.down)
    stack.up([BrokerSpec(name=BROKER, java_options=("-Xmx1g",))], ("redis", "postgres"))
    return stack


def gateways(stack: Stack, ends: ExitStack, release: str, source: str = "") -> Gateways:
    """Start two gateways of a release, and fill the topic that the groups read."""
    name = f"r{release.replace('.', '')}"
    config = stack.directory / f"{name}.toml"
    config.write_text(beside.DISTRIBUTED.format(stack=stack, name=name))
    command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--config", str(config), "--port"]
    started = Gateways(*(processes.Server(command, **({"PYTHONPATH": source} if source else {})) for _ in range(2)))
    for server in started:
        ends.callback(server.stop)
    for topic in ("bench", "filled"):
        processes.register(started.measured, f"topics/{topic}", queues=QUEUES)
    stored = 0
    while stored < BACKLOG:
        stored += started.measured.load("batch", 8, SECONDS, topic="filled")["messages"]
    return started


def _floor(stack: Stack, ends: ExitStack) -> processes.Server:
    async def prepare() -> None:
        client = RocketMQClient([stack.name_server])
        await client.routes.brokers()
        await client.admin.put_group(BROKER, "floor")
        await client.close()

    uvloop.run(prepare())
    command = [sys.executable, str(processes.HERE / "floor.py"), stack.redis_url, stack.name_server]
    # The topic of this checkout, by the name that RocketMQ has for it.
    server = processes.Server([*command, BROKER, "rhere%filled", str(QUEUES)], path="/")
    ends.callback(server.stop)
    return server


def measure(stack: Stack, servers: Gateways, case: Case) -> Found:
    """Measure one case with a new group."""
    topic = "bench" if case.traffic == "tail" else "filled"
    start = {"start": "latest"} if case.traffic == "tail" else {}
    processes.register(servers.measured, "groups/bench", topic=topic, mode=case.mode, **start)
    options = {"max": str(case.max), "wait": str(case.wait), "pause": "0" if case.wait else "0.01"}
    publisher = servers.other if case.traffic in {"other", "tail"} else servers.measured
    published = "bench" if case.traffic == "unrelated" else topic
    with ThreadPoolExecutor(1) as thread:
        if case.traffic != "backlog":
            # It publishes before, during and after the measured load.
            thread.submit(publisher.load, "single", 8, SECONDS + 2, topic=published, rate=RATE)
            time.sleep(0.5)
        found = _with_redis(stack, lambda: servers.measured.load("receive", case.clients, SECONDS, **options))
    httpx.delete(f"{servers.measured.url}/v1/groups/bench", timeout=30).raise_for_status()
    return found


def _with_redis(stack: Stack, load: Any) -> Found:
    before = processes.cpu_seconds(stack.part("redis").pid)
    found: Found = load()
    found["redis_cpu"] = processes.cpu_seconds(stack.part("redis").pid) - before
    return found


def cost(found: Found, part: str) -> float:
    """Return the CPU milliseconds per request that returned messages."""
    return float(found[part] / max(found["requests"] - found["empty"], 1) * 1000)


def _rate(found: Found) -> float:
    return float(found["messages"] / found["seconds"])


def _ratio(some: list[Found], others: list[Found], part: str) -> list[float]:
    return [cost(one, part) / (cost(other, part) or 1e-9) for one, other in zip(some, others, strict=True)]


def _report(
    table_type: Any, cases: tuple[Case, ...], found: dict[tuple[str, Case], list[Found]], floors: dict[int, list[Found]]
) -> None:
    table = table_type(
        "live",
        f"Receives of up to 32 with acks, RocketMQ, Redis and PostgreSQL, 300-byte bodies, {QUEUES} queues; CPU in ms "
        f"per request that returned messages, beside {BASELINE}, {len(next(iter(found.values())))} rounds",
        (
            *("what", "traffic", "clients", "wait", "messages/s", f"of {BASELINE}", "gateway CPU", f"of {BASELINE}"),
            *("lowest to highest", "of its backlog figure", "of the floor", "Redis CPU", f"of {BASELINE}"),
            *("of its backlog figure", "empty", "errors", "duplicates"),
        ),
    )
    for case in cases:
        here, before = found["here", case], found[BASELINE, case]
        reference = "unrelated" if case.traffic == "same" else "backlog"
        backlog = found.get(("here", case._replace(traffic=reference)), [])
        gateway = _ratio(here, before, "server_cpu")
        rates = [_rate(one) / _rate(other) for one, other in zip(here, before, strict=True)]
        table.add(
            *(TITLES[case.mode], TRAFFIC[case.traffic], case.clients, case.wait),
            *(f"{_median(map(_rate, here)):,.0f}", _median(rates)),
            *(f"{_cost(here, 'server_cpu'):.3f}", _median(gateway), f"{min(gateway):.2f} to {max(gateway):.2f}"),
            _of(here, backlog, "server_cpu"),
            _cost(here, "server_cpu") / _cost(floors[case.clients], "server_cpu"),
            *(f"{_cost(here, 'redis_cpu'):.3f}", _median(_ratio(here, before, "redis_cpu"))),
            _of(here, backlog, "redis_cpu"),
            *(sum(each[name] for each in here) for name in ("empty", "errors", "duplicates")),
        )
    for clients, some in floors.items():
        costs = f"{_cost(some, 'server_cpu'):.3f}", f"{_cost(some, 'redis_cpu'):.3f}"
        rate = f"{_median(map(_rate, some)):,.0f}"
        title = "the same round trips, nothing done (floor.py)"
        table.add(title, "", clients, "", rate, "", costs[0], "", "", "", 1.0, costs[1], "", "", "", "", "")
    table.write()


def _of(here: list[Found], backlog: list[Found], part: str) -> str:
    return f"{_median(_ratio(here, backlog, part)):.2f}" if backlog else ""


def _cost(some: list[Found], part: str) -> float:
    return _median(cost(found, part) for found in some)


def _median(values: Any) -> float:
    return statistics.median(list(values))
