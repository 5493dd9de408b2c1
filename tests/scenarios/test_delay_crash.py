"""Timers and a power cut: the process is killed while they come due, and started again."""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqgate.core.message import milliseconds
from mqgate.core.times import parse_instant
from mqgate.testing.server_process import ServerProcess

KILLS = 4
# So close that a kill in the middle finds some in dispatch, and makes the rest overdue; so few that a gateway on a busy
# machine moves them in a second.
BURST, EVERY_MS = 100, 2
# What a kill finds in dispatch waits until the gateway that is gone counts as gone: [postgres] gateway_lease.
LEASE_MS = 5_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def ms(text: str) -> int:
    return milliseconds(parse_instant(text, ""))


def schedule(client: httpx.Client, first_at: int, every_ms: int) -> dict[str, int]:
    """As many timers as a burst has; when each is due, by id."""
    items = [{"body": str(number), "deliverAt": first_at + number * every_ms} for number in range(BURST)]
    answer = client.post("/v1/topics/orders/messages", json={"messages": items})
    assert answer.status_code == 200, answer.text
    return {each["id"]: ms(each["deliverAt"]) for each in answer.json()["results"]}


def drain(client: httpx.Client, found: list[dict[str, Any]], wait: float = 0) -> int:
    """Receive and ack what is there; how much it was."""
    messages = client.post("/v1/groups/workers/receive", json={"max": 1_000, "wait": wait}).json()["messages"]
    if messages:
        found += messages
        client.post("/v1/groups/workers/ack", json={"receipts": [each["receipt"] for each in messages]})
    return len(messages)


def possible_from(due: int, outages: list[tuple[int, int]]) -> int:
    """When a timer could be stored: when it is due, or when the server is back if it was down in that second."""
    for cut, back in outages:
        # On a slow machine the next outage may follow at once.
        if cut - 1_000 <= due <= back:
            due = back
    return due


def at_worst(lateness: Iterable[int]) -> int:
    """But for one in a hundred."""
    ordered = sorted(lateness)
    return ordered[len(ordered) * 99 // 100]


@pytest.mark.slow
def test_timers_survive_kill_9_in_the_middle(tmp_path: Path, environment: dict[str, str]) -> None:
    """None early, none lost, none twice; overdue ones within a second after the restart."""
    server = ServerProcess(tmp_path / "data", **environment).start()
    client = httpx.Client(base_url=server.url, timeout=30)
    client.put("/v1/topics/orders", json={"queues": 4})
    client.put("/v1/groups/workers", json={"topic": "orders"})
    # Others come due all the while: before, between and after the kills.
    due = schedule(client, now_ms() + 500, every_ms=100)
    found: list[dict[str, Any]] = []
    outages: list[tuple[int, int]] = []

    for _ in range(KILLS):
        first_at = now_ms() + 1_000
        due |= schedule(client, first_at, every_ms=EVERY_MS)
        while now_ms() < first_at:
            drain(client, found, wait=1)
        # Not when a consumer has got something, which would be always at the same step of the dispatch.
        time.sleep(max(first_at + BURST * EVERY_MS // 2 - now_ms(), 0) / 1_000)
        server.kill()
        killed_at = now_ms()
        server.start()
        outages.append((killed_at, now_ms()))
    deadline = time.monotonic() + 30
    while len(found) < len(due) and time.monotonic() < deadline:
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
    assert len(places) == len(due), "dispatched twice"
    assert all(stored[each] >= due[each] for each in due), "early"
    late = {each: stored[each] - possible_from(due[each], outages) for each in due}
    assert sum(due[each] > cut for each in due for cut, back in outages if due[each] <= back) >= BURST // 2
    # A start takes a second. Where it takes more than two, others have the machine, and less than half is left for us.
    second = max(1_000, max(back - cut for cut, back in outages) // 2)
    # The embedded engine has no other gateway that could be at it still.
    near = {each for each in due if any(cut - 1_000 <= due[each] <= cut for cut, _ in outages)}
    in_dispatch = near if environment else set()
    assert at_worst(late[each] for each in due.keys() - in_dispatch) <= second
    # These may have been in the hands of several that are gone, one after the other.
    assert all(stored[each] - outages[-1][1] <= second + LEASE_MS for each in in_dispatch)
