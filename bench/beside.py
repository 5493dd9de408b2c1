"""This checkout beside an earlier release, in one run: CPU of the gateway per request, rounds interleaved.

The release is checked out into a temporary directory and runs with the installed packages. The ratio is the median of
the ratios of the rounds: the machine is shared, and its speed changes between rounds more than within one.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import processes

from mqgate.stack import BrokerSpec, Stack

RELEASE, COMMIT = "0.1.0", "7b02e00"
ROUNDS = 7
SECONDS = 2.0
# More than one round consumes.
BACKLOG = 100_000
ROOT = Path(__file__).parents[1]
# Both releases read these names.
DISTRIBUTED = """
[log]
engine = "rocketmq"
[rocketmq]
name_servers = ["{stack.name_server}"]
namespace = "{name}"
[leases]
engine = "redis"
[redis]
url = "{stack.redis_url}"
prefix = "{name}"
[control]
engine = "postgres"
[postgres]
url = "{stack.postgres_url}"
schema = "{name}"
"""


@dataclass(frozen=True, slots=True)
class Case:
    title: str
    scenario: str
    clients: int
    mode: str = ""
    max: str = "32"


CASES = (
    Case("publish, 8 clients", "single", 8),
    Case("publish, 64 clients", "single", 64),
    Case("publish of 100, 8 clients", "batch", 8),
    Case("receive of 1, message mode, 8 clients", "receive", 8, "message", "1"),
    Case("fetch and ack of 32, message mode, 8 clients", "receive", 8, "message"),
    Case("fetch and ack of 32, queue mode, 8 clients", "receive", 8, "queue"),
)


def embedded(table_type: Any) -> None:
    """Compare on the embedded engine; for run.py."""
    with ExitStack() as ends:
        source = ends.enter_context(released())
        servers = {"here": processes.gateway(), RELEASE: processes.gateway(PYTHONPATH=source)}
        _compare(table_type, "beside", "embedded engine", servers)


def distributed(table_type: Any) -> None:
    """Compare on RocketMQ, Redis and PostgreSQL; for run.py."""
    with ExitStack() as ends:
        source = ends.enter_context(released())
        directory = Path(tempfile.mkdtemp(prefix="mqgate-bench-"))
        directory.chmod(0o755)
        stack = Stack(directory, progress=lambda text: print(text, file=sys.stderr))
        ends.callback(stack.down)
        stack.up([BrokerSpec(name="broker-a", java_options=("-Xmx1g",))], ("redis", "postgres"))
        servers = {}
        for name, env in (("here", {}), (RELEASE, {"PYTHONPATH": source})):
            config = directory / f"{name}.toml"
            config.write_text(DISTRIBUTED.format(stack=stack, name=f"r{name.replace('.', '')}"))
            command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--config", str(config), "--port"]
            servers[name] = processes.Server(command, **env)
        _compare(table_type, "beside_distributed", "RocketMQ, Redis and PostgreSQL", servers)


@contextmanager
def released() -> Iterator[str]:
    """Check the release out; yield the directory of its packages."""
    with tempfile.TemporaryDirectory(prefix="mqgate-release-") as directory:
        archive = subprocess.run(["git", "-C", ROOT, "archive", COMMIT, "src"], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", directory], check=True, input=archive.stdout)
        yield f"{directory}/src"


def _compare(table_type: Any, name: str, what: str, servers: dict[str, processes.Server]) -> None:
    columns = ("case", "CPU us per request", f"of {RELEASE}", "half of the rounds within", "requests/s", "errors")
    table = table_type(name, f"This checkout beside {RELEASE}, {what}, 300-byte bodies, {ROUNDS} rounds", columns)
    for server in servers.values():
        for topic in ("bench", "filled"):
            processes.register(server, f"topics/{topic}", queues=8)
        stored = 0
        while stored < BACKLOG:
            stored += server.load("batch", 8, SECONDS, topic="filled")["messages"]
    for case in CASES:
        found: dict[str, list[dict[str, Any]]] = {each: [] for each in servers}
        for number in range(-1, ROUNDS):
            # The order alternates, so that neither always runs on the warmer machine.
            for each in list(servers)[:: 1 if number % 2 else -1]:
                measured = _measure(servers[each], case)
                if number >= 0:
                    found[each].append(measured)
        _report(table, case, found)
    for server in servers.values():
        server.stop()
    table.write()


def _measure(server: processes.Server, case: Case) -> dict[str, Any]:
    if not case.mode:
        return server.load(case.scenario, case.clients, SECONDS)
    # A group of its own: the one before left leases behind.
    processes.register(server, "groups/bench", topic="filled", mode=case.mode)
    found = server.load(case.scenario, case.clients, SECONDS, max=case.max)
    httpx.delete(f"{server.url}/v1/groups/bench", timeout=30).raise_for_status()
    return found


def _report(table: Any, case: Case, found: dict[str, list[dict[str, Any]]]) -> None:
    def cost(measured: dict[str, Any]) -> float:
        # Requests that found nothing cost little and would hide what a delivery costs.
        return float(measured["server_cpu"] / max(measured["requests"] - measured["empty"], 1) * 1e6)

    ratios = [cost(here) / cost(before) for here, before in zip(found["here"], found[RELEASE], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    here = found["here"]
    table.add(
        case.title,
        statistics.median(map(cost, here)),
        statistics.median(ratios),
        f"{low:.2f} to {high:.2f}",
        f"{statistics.median(each['requests'] / each['seconds'] for each in here):,.0f}",
        sum(each["errors"] for measured in found.values() for each in measured),
    )
