"""What it costs to tell events: two gateways on the embedded engine, one that tells them and one that does not.

They take turns, in short rounds, and are started anew several times: two processes of the same program differ by a few
per cent for as long as they live. What counts is the CPU of a message, and the median of the rounds' ratios.
"""

import statistics
from typing import Any

import httpx
import processes

STARTS = 4
ROUNDS = 4
SECONDS = 2.0
QUEUES = 8
CONNECTIONS = 16
BACKLOG = 120_000
# What is measured, how it is loaded, and in which mode of a group; publishing has none, and an aim.
WAYS = (
    ("publish, one a request", "single", ""),
    ("publish, 100 a request", "batch", ""),
    ("receive and ack of 32, queue mode", "receive", "queue"),
    ("receive and ack of 32, message mode", "receive", "message"),
)
AIM = 1.05
Found = dict[str, float]


def compare(table_type: Any) -> None:
    """The table; for run.py."""
    table = table_type(
        "events",
        f"What it costs to tell events, embedded engine, 300-byte bodies, {STARTS} starts of {ROUNDS} rounds",
        ("what", "CPU us per message, silent", "telling", "ratio", "messages/s, telling to silent", "aim"),
    )
    rounds: dict[str, list[dict[str, Found]]] = {title: [] for title, _, _ in WAYS}
    for _ in range(STARTS):
        gateways = _started()
        for title, scenario, mode in WAYS:
            # The first one warms up.
            for number in range(-1, ROUNDS):
                turns = list(gateways.items())[:: 1 if number % 2 else -1]
                found = {name: _turn(gateway, scenario, mode, number) for name, gateway in turns}
                rounds[title] += [found] if number >= 0 else []
        for gateway in gateways.values():
            gateway.stop()
    for title, _, mode in WAYS:
        silent, telling = (
            statistics.median([each[name]["cpu"] for each in rounds[title]]) for name in ("silent", "telling")
        )
        ratio, pace = (
            statistics.median([each["telling"][what] / each["silent"][what] for each in rounds[title]])
            for what in ("cpu", "pace")
        )
        aim = "" if mode else f"<= {AIM}"
        table.add(title, silent, telling, f"{ratio:.3f}", f"{pace:.3f}", aim)
    table.write()


def _started() -> dict[str, processes.Server]:
    """One of each, with a backlog to receive."""
    gateways = {
        name: processes.gateway(MQGATE_EVENTS_ENABLED=told) for name, told in (("telling", "true"), ("silent", "false"))
    }
    for gateway in gateways.values():
        processes.register(gateway, "topics/bench", queues=QUEUES)
        processes.register(gateway, "topics/filled", queues=QUEUES)
        stored = 0
        while stored < BACKLOG:
            stored += gateway.load("batch", 8, SECONDS, topic="filled")["messages"]
    return gateways


def _turn(gateway: processes.Server, scenario: str, mode: str, number: int) -> Found:
    group = f"{mode}-{number + 1}"
    options = {"group": group, "wait": "30"} if mode else {"topic": "bench"}
    if mode:
        processes.register(gateway, f"groups/{group}", topic="filled", mode=mode)
    found = gateway.load(scenario, CONNECTIONS, SECONDS, **options)
    if mode:
        httpx.delete(f"{gateway.url}/v1/groups/{group}", timeout=30).raise_for_status()
    messages = found["messages"]
    return {"cpu": found["server_cpu"] / messages * 1e6, "pace": messages / found["seconds"]}
