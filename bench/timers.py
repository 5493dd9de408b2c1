"""One million timers in the far future: their cost at rest and at start."""

import json
import tempfile
from pathlib import Path
from typing import Any

import httpx
import processes

_TIMERS = 1_000_000


def many(table_type: Any) -> None:
    table = table_type(
        "timers",
        f"{_TIMERS:,} pending timers, 300-byte bodies",
        ("pending", "start-up s", "memory MiB", "database MiB", "lateness of a due one ms"),
    )
    directory = tempfile.mkdtemp(prefix="mqgate-bench-")
    server = processes.gateway(directory)
    processes.register(server, "topics/bench")
    processes.register(server, "groups/bench", topic="bench")
    table.add(0, *_measure(server, directory))
    batch = json.dumps({"messages": [{"body": "x" * 300, "delay": f"{days}d"} for days in range(30, 530)] * 2})
    with httpx.Client(base_url=server.url, timeout=120) as client:
        for _ in range(_TIMERS // 1000):
            answer = client.post(
                "/v1/topics/bench/messages", content=batch, headers={"content-type": "application/json"}
            )
            answer.raise_for_status()
    server.stop()
    server = processes.gateway(directory)
    table.add(_TIMERS, *_measure(server, directory))
    server.stop()
    table.write()


def _measure(server: processes.Server, directory: str) -> tuple[float, float, float, float]:
    """Return the start time, memory, disk use, and the delay of a message that is due in one second."""
    start, memory = server.start_seconds, processes.memory_bytes(server.pid) / (1 << 20)
    size = sum(each.stat().st_size for each in Path(directory).iterdir()) / (1 << 20)
    with httpx.Client(base_url=server.url, timeout=30) as client:
        client.post("/v1/topics/bench/messages", json={"body": "due", "delay": 1}).raise_for_status()
        client.post("/v1/groups/bench/receive", json={"wait": 5}).raise_for_status()
        text = client.get("/metrics").text
    total = next(line for line in text.splitlines() if line.startswith("mqgate_dispatch_lateness_seconds_sum"))
    return start, memory, size, float(total.split()[1]) * 1000
