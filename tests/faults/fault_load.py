"""Clients that publish and consume continuously, and record only the responses that they received."""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any

from fault_calls import Gateway

MAY_FAIL = {"queue_unavailable", "storage_unavailable", "unknown"}


@dataclass
class Notes:
    """`acked`: bodies with a 2xx response, by id; `sent`: all that were sent; `failed`: why others were not stored."""

    sent: set[str] = field(default_factory=set)
    acked: dict[str, str] = field(default_factory=dict)
    homes: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    failed: Counter[str] = field(default_factory=Counter)
    delivered: defaultdict[str, defaultdict[str, set[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )


class Load:
    def __init__(self, gateway: Gateway, topic: str) -> None:
        self._gateway = gateway
        self._topic = topic
        self.notes = Notes()
        self.is_over = False

    @contextlib.asynccontextmanager
    async def running(self, *clients: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run clients. At the end they finish what they have begun."""
        tasks = [asyncio.create_task(client) for client in clients]
        try:
            yield
            self.is_over = True
            async with asyncio.timeout(30):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def loose(self, name: str) -> None:
        """Publish batches without keys."""
        number = 0
        while not self.is_over:
            bodies = [f"{name}-{number + index}" for index in range(1 + number % 3)]
            number += len(bodies)
            await self._batch([{"body": body} for body in bodies])

    async def keyed(self, name: str) -> None:
        """Publish batches whose messages go to many queues."""
        number = 0
        while not self.is_over:
            numbers = range(number, number + 4)
            number += 4
            await self._batch([{"body": f"{name}-{number}", "key": f"k{number % 24}"} for number in numbers])

    async def _batch(self, envelopes: list[dict[str, str]]) -> None:
        self.notes.sent.update(envelope["body"] for envelope in envelopes)
        response = await self._gateway.api.post(f"/v1/topics/{self._topic}/messages", json={"messages": envelopes})
        assert response.status_code in {200, 207, 503}, response.text
        if response.status_code == 503:
            self._note_failure(response.json()["code"], response.headers)
            await asyncio.sleep(0.05)
            return
        for envelope, result in zip(envelopes, response.json()["results"], strict=True):
            if "error" in result:
                self._note_failure(result["error"]["code"], response.headers)
            else:
                self.notes.acked[envelope["body"]] = result["id"]
                if "key" in envelope:
                    self.notes.homes[envelope["key"]].add(result["queue"])
        await asyncio.sleep(0.01)

    async def once(self, name: str) -> None:
        """Publish single messages. Each is repeated under its idempotency key until it is stored."""
        number = 0
        while not self.is_over:
            number += 1
            envelope = {"body": f"{name}-{number}", "idempotencyKey": f"{name}-{number}", "key": f"o{number % 16}"}
            self.notes.sent.add(envelope["body"])
            while True:
                response = await self._gateway.publish(self._topic, **envelope)
                if response.status_code in {200, 201}:
                    self.notes.acked[envelope["body"]] = response.json()["id"]
                    break
                assert response.status_code == 503, response.text
                self._note_failure(response.json()["code"], response.headers)
                await asyncio.sleep(0.05)

    def _note_failure(self, code: str, headers: object) -> None:
        assert code in MAY_FAIL, code
        assert "retry-after" in headers  # type: ignore[operator] # httpx's
        self.notes.failed[code] += 1

    async def consumer(self, group: str) -> None:
        while not self.is_over:
            await self.consume(group, wait=5)

    async def consume(self, group: str, wait: float) -> int:
        """Receive and ack one batch. Return the number of messages."""
        response = await self._gateway.api.post(f"/v1/groups/{group}/receive", json={"max": 32, "wait": wait})
        assert response.status_code == 200, response.text
        received = response.json()
        assert not received.get("rewound"), "no queue became shorter"
        for message in received["messages"]:
            self.notes.delivered[group][message["body"]].add(message["id"])
        if received["messages"]:
            await self._gateway.ack(received, group)
        return len(received["messages"])

    async def drain(self, group: str) -> None:
        while await self.consume(group, wait=2):
            pass
