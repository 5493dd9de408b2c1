"""Results of the distributed deployment, compared with its targets."""

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

Found = dict[str, Any]
TITLES = {
    "publish": "publish",
    "queue": "fetch and ack of 32, queue mode",
    "message": "receive and ack of 32, message mode",
}
FLOOR_TITLE = "the same round trips and answers, nothing done (floor.py)"
JAVA_TITLES = {"publish": "send, 64 threads", "pull": "pulled message, 32 at a time, no acks"}
# `others' cores`: cores that other processes used meanwhile.
COLUMNS = (
    *("what", "workers", "clients", "requests/s", "messages/s", "p50 ms", "p99 ms"),
    *("gateway CPU", "Redis CPU", "broker CPU", "generator CPU"),
    *("empty", "errors", "duplicates", "others' cores"),
)


class Case(NamedTuple):
    what: str
    workers: int
    clients: int


class Aim(NamedTuple):
    """What is wanted of the worst case; `established` is what a Java proxy of the same kind needs on this machine.

    `floor`: the least of what the same round trips took without any work.
    """

    title: str
    wanted: float
    established: str
    is_least: bool
    found: float
    floor: str = ""


def _served(found: Found) -> int:
    """Return the number of requests that returned messages. The cost of empty ones is attributed to them."""
    return int(found["requests"] - found["empty"] - found["errors"])


def _rate(results: list[Found]) -> float:
    return statistics.median(result["messages"] / result["seconds"] for result in results)


def _cost(results: list[Found], name: str) -> float:
    """Return CPU milliseconds per request."""
    return statistics.median(result[name] / max(_served(result), 1) * 1000 for result in results)


def report(table_type: Any, title: str, rounds: dict[Case, list[Found]], java: dict[str, list[Found]]) -> None:
    """Write the tables. CPU is in ms per request that returned messages."""
    table = table_type("production", f"{title}; CPU in ms per request", COLUMNS)
    for case, results in rounds.items():
        table.add(
            TITLES.get(case.what, FLOOR_TITLE),
            case.workers,
            case.clients,
            f"{statistics.median(_served(result) / result['seconds'] for result in results):,.0f}",
            f"{_rate(results):,.0f}",
            *(statistics.median(result[name] for result in results) for name in ("p50", "p99")),
            *(f"{_cost(results, name):.3f}" for name in ("server_cpu", "redis_cpu", "broker_cpu", "cpu")),
            *(sum(result[name] for result in results) for name in ("empty", "errors", "duplicates")),
            statistics.median(result["others"] for result in results),
        )
    for name, results in java.items():
        cpu, broker = (
            f"{statistics.median(result[part] / result['messages'] * 1000 for result in results):.3f}"
            for part in ("cpu", "broker_cpu")
        )
        others = statistics.median(result["others"] for result in results)
        title = f"Apache's Java client, per {JAVA_TITLES[name]}"
        table.add(title, "", "", "", f"{_rate(results):,.0f}", "", "", cpu, "", broker, "", "", "", "", others)
    aims = table_type(
        "production_aims",
        "What is wanted, and the worst of what was found",
        ("aim", "wanted", "established Java proxy", "without any work", "found", "reached"),
    )
    for aim in _aims(rounds, java):
        is_reached = aim.found >= aim.wanted if aim.is_least else aim.found <= aim.wanted
        sign = ">=" if aim.is_least else "<="
        reached = "yes" if is_reached else "no"
        aims.add(aim.title, f"{sign} {aim.wanted:.2f}", aim.established, aim.floor, f"{aim.found:.3f}", reached)
    table.write(aims)


def _aims(rounds: dict[Case, list[Found]], java: dict[str, list[Found]]) -> Iterator[Aim]:
    def worst(what: str, name: str) -> float:
        return max(_cost(results, name) for case, results in rounds.items() if case.what == what)

    def ratio(one: Case, other: Case) -> float:
        pairs = zip(rounds[one], rounds[other], strict=True)
        return statistics.median(a["messages"] / a["seconds"] / (b["messages"] / b["seconds"]) for a, b in pairs)

    def least(name: str) -> str:
        return f"{min(_cost(results, name) for case, results in rounds.items() if case.what == 'floor'):.3f}"

    for who, name, wanted, theirs in (("gateway", "server_cpu", 0.30, "0.77"), ("Redis", "redis_cpu", 0.06, "0.28")):
        title = f"{who} CPU ms per fetch and ack of 32"
        yield Aim(title, wanted, theirs, False, worst("queue", name), least(name))
    yield Aim("gateway CPU ms per publish", 0.20, "0.28", False, worst("publish", "server_cpu"))
    for workers in (1, 2):
        title = f"messages/s with 64 clients, of those with 8, queue mode, {workers} worker(s)"
        yield Aim(title, 1.0, "", True, ratio(Case("queue", workers, 64), Case("queue", workers, 8)))

    def per_message(case: Case) -> float:
        return statistics.median(
            (result["server_cpu"] + result["redis_cpu"]) / result["messages"] for result in rounds[case]
        )

    for _, workers, clients in (case for case in rounds if case.what == "queue"):
        title = f"a message in message mode, of queue mode's cost, {workers} worker(s), {clients} clients"
        one, other = (per_message(Case(what, workers, clients)) for what in ("message", "queue"))
        yield Aim(title, 1.5, "", False, one / other)
    for what, direct in (("publish", "publish"), ("queue", "pull")):
        best = max(_rate(rounds[Case(what, 2, clients)]) for clients in (8, 64))
        title = f"messages/s, {TITLES[what]}, 2 workers, of Apache's Java client"
        yield Aim(title, 0.6, "", True, best / _rate(java[direct]))
