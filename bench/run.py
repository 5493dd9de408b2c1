"""`make bench`: the gateway compared with its components, in one run, with interleaved rounds and medians.

Only ratios are significant, because the machine is shared. Every table is also written to bench/results/.
"""

import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import bare_sqlite
import beside
import clients
import events_cost
import live
import on_pipelines
import on_production
import on_rocketmq
import on_spark
import parked
import processes
import spark_rocketmq
import timers

ROUNDS = 3
SECONDS = 2.0
RESULTS = Path(__file__).parent / "results"


class Table:
    def __init__(self, name: str, title: str, columns: Iterable[str]) -> None:
        self.name = name
        self.title = title
        self.rows = [list(columns)]

    def add(self, *cells: object) -> None:
        self.rows.append([f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in cells])
        print("  ", " | ".join(self.rows[-1]), file=sys.stderr, flush=True)

    def write(self, *others: "Table") -> None:
        """Write the table to the file of its name, below earlier ones."""
        text = "\n".join(table.text() for table in (self, *others))
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.name}.md").write_text(text)
        print("\n" + text, flush=True)

    def text(self) -> str:
        widths = [max(len(row[column]) for row in self.rows) for column in range(len(self.rows[0]))]
        lines = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
            for row in self.rows
        ]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return f"## {self.title}\n\n" + "\n".join(lines) + "\n"


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def publish() -> None:
    table = Table(
        "publish",
        "Publish, 300-byte bodies, fsync on, 64 connections",
        ("what", "per second", "of its baseline", "server CPU us per message", "p50 ms", "p99 ms", "generator CPU"),
    )
    noop, gateway = processes.noop(), processes.gateway()
    processes.register(gateway, "topics/bench")
    rounds: dict[str, list[dict[str, float]]] = {"noop": [], "single": [], "batch": [], "sqlite": []}
    for _ in range(ROUNDS):
        rounds["noop"].append(noop.load("noop", 64, SECONDS))
        rounds["single"].append(gateway.load("single", 64, SECONDS))
        rounds["sqlite"].append({"rate": bare_sqlite.messages_per_second(100, SECONDS)})
        rounds["batch"].append(gateway.load("batch", 64, SECONDS))
    noop.stop()
    gateway.stop()

    def row(name: str, what: str, baseline: float) -> float:
        some = rounds[name]
        rate = median(each["messages"] / each["seconds"] for each in some)
        cpu = median(each["server_cpu"] / max(each["messages"], 1) * 1e6 for each in some)
        load = median(each["cpu"] / each["seconds"] for each in some)
        latencies = (median(each["p50"] for each in some), median(each["p99"] for each in some))
        table.add(what, f"{rate:,.0f}", rate / (baseline or rate), cpu, *latencies, load)
        return rate

    base = row("noop", "HTTP stack alone, 204", 0)
    row("single", "single publish (of the stack alone)", base)
    bare = median(each["rate"] for each in rounds["sqlite"])
    table.add("bare SQLite, 100 a commit", f"{bare:,.0f}", 1.0, "", "", "", "")
    row("batch", "batch of 100 (of bare SQLite)", bare)
    table.write()


def receive() -> None:
    table = Table(
        "receive",
        "Receive with carried acks, 300-byte bodies",
        ("what", "messages/s", "requests/s", "server CPU us per message", "of queue mode's", "errors"),
    )
    gateway = processes.gateway()
    processes.register(gateway, "topics/bench")
    for name, mode in (("queue", "queue"), ("message", "message"), ("single", "message")):
        processes.register(gateway, f"groups/{name}", topic="bench", mode=mode)
    gateway.load("batch", 16, SECONDS * 4)
    cases = (("queue", "32", 6), ("message", "32", 6), ("single", "1", 6))
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name, _, _ in cases}
    for _ in range(ROUNDS):
        for name, most, connections in cases:
            rounds[name].append(gateway.load("receive", connections, SECONDS, group=name, max=most))
    gateway.stop()
    base = 0.0
    for (name, most, _), title in zip(
        cases, ("queue mode, 32 a batch", "message mode, 32 a receive", "message mode, 1 a receive"), strict=True
    ):
        some = rounds[name]
        cpu = median(each["server_cpu"] / max(each["messages"], 1) * 1e6 for each in some)
        base = base or cpu
        rate = median(each["messages"] / each["seconds"] for each in some)
        requests = median(each["requests"] / each["seconds"] for each in some)
        table.add(
            f"{title}", f"{rate:,.0f}", f"{requests:,.0f}", cpu, cpu / base, int(sum(each["errors"] for each in some))
        )
        del most
    table.write()


def flat() -> None:
    """Show that the cost of a request does not grow with groups, queues or the backlog of others."""
    table = Table(
        "flat",
        "Server CPU per receive of 32 (with carried acks), against more of everything",
        ("what", "us per request", "ratio to the first"),
    )

    def cost(server: processes.Server, group: str, topic: str) -> float:
        server.load("batch", 8, SECONDS, topic=topic)
        found = server.load("receive", 6, SECONDS, group=group, max="32")
        return float(found["server_cpu"] / found["requests"] * 1e6)

    def compare(what: str, mode: str, variants: dict[str, Callable[[processes.Server], None]]) -> None:
        servers = {name: processes.gateway() for name in variants}
        for name, prepare in variants.items():
            prepare(servers[name])
        found: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(ROUNDS):
            for name, server in servers.items():
                found[name].append(cost(server, "bench", "bench"))
        first = 0.0
        for name, server in servers.items():
            value = median(found[name])
            first = first or value
            table.add(f"{what}, {mode} mode: {name}", value, value / first)
            server.stop()

    def plain(queues: int, groups: int, mode: str) -> Callable[[processes.Server], None]:
        def prepare(server: processes.Server) -> None:
            processes.register(server, "topics/bench", queues=queues)
            processes.register(server, "groups/bench", topic="bench", mode=mode)
            for number in range(1, groups):
                processes.register(server, f"groups/other-{number}", topic="bench", mode=mode)

        return prepare

    for mode in ("queue", "message"):
        compare("groups", mode, {"1 group": plain(8, 1, mode), "100 groups": plain(8, 100, mode)})
        compare("queues", mode, {"8 queues": plain(8, 1, mode), "256 queues": plain(256, 1, mode)})

    def behind(server: processes.Server) -> None:
        plain(8, 70, "message")(server)
        server.load("batch", 16, SECONDS * 3)

    compare("70 groups on one topic", "message", {"none behind": plain(8, 1, "message"), "69 far behind": behind})
    table.write()


def main() -> None:
    benches: dict[str, Callable[[], None]] = {
        "publish": publish,
        "receive": receive,
        "beside": lambda: beside.embedded(Table),
        "beside-distributed": lambda: beside.distributed(Table),
        "live": lambda: live.compare(Table),
        "client": lambda: clients.compare(Table),
        "flat": flat,
        "wake": lambda: parked.wake(Table),
        "parked": lambda: parked.idle(Table),
        "timers": lambda: timers.many(Table),
        "rocketmq": lambda: on_rocketmq.compare(Table),
        "rocketmq-wake": lambda: on_rocketmq.wake(Table),
        "production": lambda: on_production.compare(Table),
        "spark": lambda: on_spark.compare(Table),
        "events": lambda: events_cost.compare(Table),
        "pipelines": lambda: on_pipelines.compare(Table),
        "spark-rocketmq": lambda: spark_rocketmq.compare(Table),
    }
    if unknown := set(sys.argv[1:]) - benches.keys():
        sys.exit(f"no bench is called {', '.join(sorted(unknown))}; there are {', '.join(benches)}")
    for name in sys.argv[1:] or benches:
        print(f"{name} ...", file=sys.stderr, flush=True)
        benches[name]()


if __name__ == "__main__":
    main()
