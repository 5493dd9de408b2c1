"""The CPU cost of event recording, on the embedded engine, with recording switched on and off in turn.

One process is switched while it runs (see switched.py), and is restarted several times. The result is the CPU per
message, including the writing of events, as the median of the ratios of the rounds.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from typing import Any

import httpx
import processes

STARTS = 3
ROUNDS = 4
SECONDS = 2.0
QUEUES = 8
CONNECTIONS = 16
BACKLOG = 120_000
# Maximum time until the last events are written.
WRITTEN = 0.5
# Name, load scenario and group mode of each case; publishing has no mode but a target.
WAYS = (
    ("publish, one a request", "single", ""),
    ("publish, 100 a request", "batch", ""),
    ("receive and ack of 32, queue mode", "receive", "queue"),
    ("receive and ack of 32, message mode", "receive", "message"),
)
AIM = 1.05
Found = dict[str, float]


def compare(table_type: Any) -> None:
    """Write the table; for run.py."""
    table = table_type(
        "events",
        f"What it costs to tell events, embedded engine, 300-byte bodies, {STARTS} starts of {ROUNDS} rounds",
        ("what", "CPU us per message, silent", "telling", "ratio", "half of the ratios", "messages/s", "aim"),
    )
    rounds: dict[str, list[dict[str, Found]]] = {title: [] for title, _, _ in WAYS}
    for _ in range(STARTS):
        gateway = _started()
        for title, scenario, mode in WAYS:
            # The first round is a warm-up.
            for number in range(-1, ROUNDS):
                names = ("silent", "telling") if number % 2 else ("telling", "silent")
                found = {name: _turn(gateway, scenario, mode, name) for name in names}
                rounds[title] += [found] if number >= 0 else []
        gateway.stop()
    for title, _, mode in WAYS:
        silent, telling = (
            statistics.median([each[name]["cpu"] for each in rounds[title]]) for name in ("silent", "telling")
        )
        ratios = [each["telling"]["cpu"] / each["silent"]["cpu"] for each in rounds[title]]
        pace = statistics.median([each["telling"]["pace"] / each["silent"]["pace"] for each in rounds[title]])
        low, middle, high = statistics.quantiles(ratios, n=4)
        aim = "" if mode else f"<= {AIM}"
        table.add(title, silent, telling, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", f"{pace:.3f}", aim)
    table.write()


def _started() -> processes.Server:
    """Start a gateway with a backlog to receive."""
    directory = tempfile.mkdtemp(prefix="mqgate-bench-")
    program = str(processes.HERE / "switched.py")
    gateway = processes.Server([sys.executable, program, "serve", "--data-dir", directory, "--port"])
    processes.register(gateway, "topics/bench", queues=QUEUES)
    processes.register(gateway, "topics/filled", queues=QUEUES)
    stored = 0
    while stored < BACKLOG:
        stored += gateway.load("batch", 8, SECONDS, topic="filled")["messages"]
    return gateway


def _turn(gateway: processes.Server, scenario: str, mode: str, name: str) -> Found:
    group = f"{mode}-group"
    options = {"group": group, "wait": "30"} if mode else {"topic": "bench"}
    if mode:
        processes.register(gateway, f"groups/{group}", topic="filled", mode=mode)
    before = processes.tree_cpu(gateway.pid)
    _switch(gateway, name)
    found = gateway.load(scenario, CONNECTIONS, SECONDS, **options)
    _switch(gateway, name)
    time.sleep(WRITTEN)
    cpu = processes.tree_cpu(gateway.pid) - before
    if mode:
        httpx.delete(f"{gateway.url}/v1/groups/{group}", timeout=30).raise_for_status()
    return {"cpu": cpu / found["messages"] * 1e6, "pace": found["messages"] / found["seconds"]}


def _switch(gateway: processes.Server, name: str) -> None:
    if name == "telling":
        os.kill(gateway.pid, signal.SIGUSR1)
