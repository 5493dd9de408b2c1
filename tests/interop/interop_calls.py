"""Helpers for calls to /v1."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from mqgate import bootstrap
from mqgate.settings import Settings

Json = dict[str, Any]


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[tuple[bootstrap.Gateway, httpx.AsyncClient]]:
    """Return a gateway and an HTTP client that calls it without a socket."""
    async with bootstrap.gateway(settings) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            yield gateway, api


async def put(api: httpx.AsyncClient, path: str, **body: Any) -> Json:
    response = await api.put(f"/v1/{path}", json=body)
    assert response.status_code in {200, 201}, response.text
    return dict(response.json())


async def shop(api: httpx.AsyncClient, queues: int = 1, **group: Any) -> None:
    """Register topic `orders` and group `workers`."""
    await put(api, "topics/orders", queues=queues)
    await put(api, "groups/workers", **{"topic": "orders", **group})


async def publish(api: httpx.AsyncClient, *envelopes: Json, topic: str = "orders") -> list[Json]:
    """Publish in one batch, in order."""
    response = await api.post(f"/v1/topics/{topic}/messages", json={"messages": envelopes})
    assert response.status_code == 200, response.text
    return list(response.json()["results"])


async def receive(api: httpx.AsyncClient, group: str = "workers", **options: Any) -> Json:
    response = await api.post(f"/v1/groups/{group}/receive", json=options, timeout=70)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def take(api: httpx.AsyncClient, count: int, group: str = "workers", *, wait: float = 10.0) -> list[Json]:
    """Receive and ack `count` messages with as many receives as needed; fewer if no more arrive."""
    found: list[Json] = []
    receipts: list[str] = []
    while len(found) < count:
        options = {"max": count - len(found), "wait": wait, "ack": receipts}
        received = await receive(api, group, **options)
        if not received["messages"]:
            break
        found += received["messages"]
        # Queue mode has one receipt per batch, message mode has one per message.
        lease = received.get("lease")
        receipts = [lease["receipt"]] if lease else [message["receipt"] for message in received["messages"]]
    if receipts:
        response = await api.post(f"/v1/groups/{group}/ack", json={"receipts": receipts})
        assert response.status_code == 200, response.text
    return found


def body_of(message: Json) -> bytes:
    return base64.b64decode(message["bodyBase64"]) if "bodyBase64" in message else message["body"].encode()


async def lag(api: httpx.AsyncClient, group: str = "workers") -> Json:
    response = await api.get(f"/v1/groups/{group}/lag")
    assert response.status_code == 200, response.text
    return dict(response.json())


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    """Poll until a condition is true."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        await asyncio.sleep(0.05)
