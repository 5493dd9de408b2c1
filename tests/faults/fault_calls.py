"""Calls of /v1 while servers fail, on a gateway in this process."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import httpx

from mqgate import bootstrap
from mqgate.core.message import slot_of
from mqgate.settings import Settings

Json = dict[str, Any]
QUEUES = 8
BROKERS = ("broker-a", "broker-b")


def key_for(broker: str, queue_id: int = 0, queues: int = QUEUES) -> str:
    """Return a message key that selects a queue of this broker. Slots alternate between the brokers."""
    slot = queue_id * len(BROKERS) + BROKERS.index(broker)
    return next(key for key in map(str, range(10_000)) if slot_of(key) % (queues * len(BROKERS)) == slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A gateway, and an HTTP client for it without a socket."""

    built: bootstrap.Gateway
    api: httpx.AsyncClient

    async def put(self, path: str, **body: Any) -> Json:
        response = await self.api.put(f"/v1/{path}", json=body)
        assert response.status_code in {200, 201}, response.text
        return dict(response.json())

    async def shop(self, topic: str = "orders", group: str = "workers", queues: int = QUEUES, **more: Any) -> None:
        """Create a topic with this many queues on each broker, and a group that reads it."""
        await self.put(f"topics/{topic}", queues=queues * len(BROKERS))
        await self.put(f"groups/{group}", **{"topic": topic, **more})

    async def publish(self, topic: str = "orders", **envelope: Any) -> httpx.Response:
        return await self.api.post(f"/v1/topics/{topic}/messages", json={"body": "hello", **envelope})

    async def stored(self, topic: str = "orders", **envelope: Any) -> Json:
        """Publish successfully and return the result."""
        response = await self.publish(topic, **envelope)
        assert response.status_code in {200, 201}, response.text
        return dict(response.json())

    async def receive(self, group: str = "workers", **wish: Any) -> Json:
        response = await self.api.post(f"/v1/groups/{group}/receive", json=wish)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def ack(self, received: Json, group: str = "workers") -> list[str]:
        """Ack all messages of a response. Return the outcomes."""
        lease = received.get("lease")
        receipts = [lease["receipt"]] if lease else [message["receipt"] for message in received["messages"]]
        response = await self.api.post(f"/v1/groups/{group}/ack", json={"receipts": receipts})
        return [result["outcome"] for result in response.json()["results"]]

    async def drain(self, group: str = "workers", wait: float = 2) -> list[Json]:
        """Receive and ack until nothing arrives."""
        found: list[Json] = []
        while (received := await self.receive(group, max=32, wait=wait))["messages"]:
            found += received["messages"]
            await self.ack(received, group)
        return found

    async def ready(self) -> tuple[int, str, Json]:
        """Return the response of /readyz: HTTP status, status, parts."""
        response = await self.api.get("/readyz")
        return response.status_code, response.json()["status"], response.json()["parts"]

    async def metric(self, name: str) -> float:
        """Return a sample of /metrics, or 0 if it was never counted."""
        lines = (await self.api.get("/metrics")).text.splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    async def parked(self, count: int = 1) -> None:
        """Wait until this many receives are parked."""

        async def is_so() -> bool:
            return self.built.long_poll.parked == count

        await eventually(is_so, 10)


Open = Callable[[], AbstractAsyncContextManager[Gateway]]


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Gateway]:
    async with bootstrap.gateway(settings) as built:
        transport = httpx.ASGITransport(app=built.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            yield Gateway(built=built, api=api)


async def timed(work: Awaitable[Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return await work, time.monotonic() - began


async def eventually(is_so: Callable[[], Awaitable[Any]], seconds: float) -> float:
    """Retry until a condition is true. Return the elapsed seconds."""
    began = time.monotonic()
    while not await is_so():
        assert time.monotonic() < began + seconds, f"it did not happen in {seconds} s"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def problem(response: httpx.Response) -> tuple[int, str]:
    """Return the status and the stable code of a refusal."""
    return response.status_code, response.json().get("code", "")
