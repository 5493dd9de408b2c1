"""Timers and crashes: the process is killed while timers become due, and started again."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqgate.core.message import milliseconds
from mqgate.core.times import parse_instant
from mqgate.testing.server_process import ServerProcess

TIMERS = 10_000
# Within a minute, and so that a gateway moves in a second what comes due while it starts, also on a busy machine.
SPREAD_MS = 40_000


def ms(text: str) -> int:
    return milliseconds(parse_instant(text, ""))


def schedule(client: httpx.Client, first_at: int) -> dict[str, int]:
    """Schedule timers that are spread evenly over some seconds. Return the due times by id."""
    due: dict[str, int] = {}
    for start in range(0, TIMERS, 1_000):
        items = [
            {"body": str(number), "deliverAt": first_at + number * SPREAD_MS // TIMERS}
            for number in range(start, start + 1_000)
        ]
        response = client.post("/v1/topics/orders/messages", json={"messages": items})
        assert response.status_code == 200, response.text
        due |= {result["id"]: ms(result["deliverAt"]) for result in response.json()["results"]}
    return due


def drain(client: httpx.Client, found: list[dict[str, Any]], wait: float = 0) -> int:
    """Receive and ack the available messages. Return their number."""
    messages = client.post("/v1/groups/workers/receive", json={"max": 1_000, "wait": wait}).json()["messages"]
    if messages:
        found += messages
        client.post("/v1/groups/workers/ack", json={"receipts": [message["receipt"] for message in messages]})
    return len(messages)


def possible_from(due: int, outages: list[tuple[int, int]]) -> int:
    """Return when a timer could be stored: at its due time, or when the server was available again."""
    for cut, back in outages:
        # On a slow machine the next outage may follow at once.
        if cut - 1_000 <= due <= back:
            due = back
    return due


@pytest.mark.slow
def test_timers_survive_sigkill_during_dispatch(tmp_path: Path, environment: dict[str, str]) -> None:
    """No message is early, lost or duplicated. Overdue ones are delivered within a second after the restart."""
    server = ServerProcess(tmp_path / "data", **environment).start()
    client = httpx.Client(base_url=server.url, timeout=30)
    client.put("/v1/topics/orders", json={"queues": 4})
    client.put("/v1/groups/workers", json={"topic": "orders"})
    first_at = time.time_ns() // 1_000_000 + 3_000
    due = schedule(client, first_at)
    found: list[dict[str, Any]] = []
    killed_at, back_at = [], []

    for share in (0.25, 0.5):
        while time.time_ns() // 1_000_000 < first_at + share * SPREAD_MS:
            drain(client, found, wait=1)
        server.kill()
        killed_at.append(time.time_ns() // 1_000_000)
        server.start()
        back_at.append(time.time_ns() // 1_000_000)
    deadline = time.monotonic() + SPREAD_MS / 1000 + 20
    while len(found) < TIMERS and time.monotonic() < deadline:
        drain(client, found, wait=2)
    extra = drain(client, found, wait=2)
    left = client.get("/v1/scheduled").json()["items"]
    client.close()
    server.stop()

    delivered = Counter(message["id"] for message in found)
    stored = {message["id"]: ms(message["storedAt"]) for message in found}
    assert extra == 0
    assert left == []
    assert delivered.keys() == due.keys(), "lost or invented"
    # A receive whose ack the kill swallowed may come again: the same offset, not a second dispatch.
    places = {(message["id"], message["queue"], message["offset"]) for message in found}
    assert len(places) == TIMERS, "dispatched twice"
    assert all(stored[message_id] >= due[message_id] for message_id in due), "early"
    outages = list(zip(killed_at, back_at, strict=True))
    lateness = sorted(stored[message_id] - possible_from(due[message_id], outages) for message_id in due)
    assert lateness[len(lateness) * 99 // 100] <= 1_000, lateness[-20:]
