"""Kill a gateway repeatedly under load: confirmed operations survive, and nothing else is lost.

Publishers and consumers record only the responses that they received. Afterwards the whole log is read and compared
with these notes.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqgate.testing.server_process import ServerProcess

KILLS = 20
QUEUES = 4
DONE = {"applied", "late_applied", "duplicate"}
Spot = tuple[str, int]


@dataclass
class Notes:
    """The responses that the clients received."""

    stored: dict[Spot, str] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    delivered: dict[str, set[Spot]] = field(default_factory=dict)
    acked: dict[str, set[Spot]] = field(default_factory=dict)
    came_back: list[tuple[str, Spot]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


class Load:
    def __init__(self, url: str) -> None:
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
        self.api = httpx.AsyncClient(base_url=url, limits=limits, timeout=20)
        self.notes = Notes()
        self.is_up = asyncio.Event()
        self.is_over = False

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Send one request. Return None if its outcome is unknown."""
        await self.is_up.wait()
        try:
            response = await self.api.request(method, path, json=body)
        # The HTTP library raises AttributeError if the connection ends between its opening and its first use.
        except (httpx.TransportError, AttributeError):
            return None
        assert response.status_code < 500, response.text
        return response

    async def publisher(self, name: int) -> None:
        number = 0
        while not self.is_over:
            bodies = [f"{name}-{number + index}" for index in range(1 + number % 3)]
            number += len(bodies)
            self.notes.sent.update(bodies)
            response = await self.call(
                "POST", "/v1/topics/t/messages", {"messages": [{"body": body} for body in bodies]}
            )
            if response is None:
                continue
            assert response.status_code == 200, response.text
            for body, stored in zip(bodies, response.json()["results"], strict=True):
                spot = (stored["queue"], stored["offset"])
                assert spot not in self.notes.stored, "one offset was given to two messages"
                self.notes.stored[spot] = body

    async def consumer(self, group: str, client: str | None = None) -> None:
        while not self.is_over:
            await self.consume(group, client)

    async def consume(self, group: str, client: str | None = None, wait: float = 0) -> int | None:
        """Receive and ack one batch. Return the number of messages, or None if the outcome is unknown."""
        name = client or group
        known = frozenset(self.notes.acked.setdefault(name, set()))
        wish = {"max": 20, "wait": wait, **({"clientId": client} if client else {})}
        response = await self.call("POST", f"/v1/groups/{group}/receive", wish)
        if response is None:
            return None
        received = response.json()
        spots = [(message["queue"], message["offset"]) for message in received["messages"]]
        self.notes.delivered.setdefault(name, set()).update(spots)
        self.notes.came_back += [(name, spot) for spot in spots if spot in known]
        if not spots:
            return 0
        lease = received.get("lease")
        receipts = [lease["receipt"]] if lease else [message["receipt"] for message in received["messages"]]
        settled = await self.call("POST", f"/v1/groups/{group}/ack", {"receipts": receipts})
        if settled is None:
            return None
        outcomes = [result["outcome"] for result in settled.json()["results"]]
        self.notes.outcomes.update(outcomes)
        for index, spot in enumerate(spots):
            if outcomes[0 if lease else index] in DONE:
                self.notes.acked[name].add(spot)
        return len(spots)

    async def drain(self, group: str, client: str | None = None) -> None:
        """Receive until nothing is left. Leases of killed consumers expire meanwhile."""
        while await self.consume(group, client, wait=4) != 0:
            pass


async def in_time(work: Awaitable[Any], seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await work


async def read_all(load: Load) -> dict[Spot, str]:
    """Return the messages of the whole log."""
    found: dict[Spot, str] = {}
    for queue in range(QUEUES):
        offset = 0
        while True:
            page = (
                await load.call("GET", f"/v1/topics/t/queues/local:{queue}/messages?offset={offset}&max=1000")
            ).json()
            found |= {(message["queue"], message["offset"]): message["body"] for message in page["messages"]}
            offset = page["next"]
            if not page["messages"]:
                assert (page["min"], page["max"]) == (0, offset), "offsets are dense"
                break
    return found


@pytest.mark.slow
@pytest.mark.timeout(170)
async def test_confirmed_operations_survive_twenty_kills(tmp_path: Path, environment: dict[str, str]) -> None:
    """Every message with a 2xx response is at its offset, no acked batch returns, and all others are delivered."""
    seed = int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"CRASH_SEED={seed}")  # noqa: T201 - shown when it fails, to play it again
    dice = random.Random(seed)
    server = ServerProcess(tmp_path, MQGATE_LOGGING_LEVEL="error", **environment)
    await asyncio.to_thread(server.start)
    load = Load(server.url)
    load.is_up.set()
    await load.call("PUT", "/v1/topics/t", {"queues": QUEUES})
    settings = {"topic": "t", "visibility": "2s", "maxAttempts": 1_000}
    await load.call("PUT", "/v1/groups/workers", {**settings, "mode": "queue"})
    await load.call("PUT", "/v1/groups/all", {**settings, "mode": "broadcast", "start": "earliest"})
    await load.call("PUT", "/v1/groups/singles", {**settings, "backoff": ["0s"]})

    tasks = [asyncio.create_task(load.publisher(name)) for name in range(4)]
    tasks += [asyncio.create_task(load.consumer("workers")) for _ in range(3)]
    tasks += [asyncio.create_task(load.consumer("singles")) for _ in range(3)]
    tasks += [asyncio.create_task(load.consumer("all", client)) for client in ("ada", "ben")]
    for _ in range(KILLS):
        await asyncio.sleep(dice.uniform(0.02, 0.5))
        load.is_up.clear()
        server.kill()
        await asyncio.to_thread(server.start)
        load.is_up.set()
    load.is_over = True
    await in_time(asyncio.gather(*tasks), 30)
    places = (("workers", None), ("singles", None), ("all", "ada"), ("all", "ben"))
    await in_time(asyncio.gather(*(load.drain(group, client) for group, client in places)), 60)

    notes, log = load.notes, await read_all(load)
    lags = [
        (await load.call("GET", f"/v1/groups/{group}/lag{f'?clientId={client}' if client else ''}")).json()["lag"]
        for group, client in places
    ]
    await load.api.aclose()
    server.stop()
    assert len(notes.stored) > 100
    assert {spot: log.get(spot) for spot in notes.stored} == notes.stored
    assert set(log.values()) <= notes.sent
    assert len(set(log.values())) == len(log), "no message was stored twice"
    assert notes.came_back == []
    assert {name: spots ^ set(log) for name, spots in notes.delivered.items()} == {
        name: set() for name in ("workers", "singles", "ada", "ben")
    }
    assert lags == [0, 0, 0, 0]
