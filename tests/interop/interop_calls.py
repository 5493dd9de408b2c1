"""Calls of /v1 as these tests write them."""

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
    """A gateway, and HTTP to it without a socket."""
    async with bootstrap.gateway(settings) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            yield gateway, api


async def put(api: httpx.AsyncClient, path: str, **body: Any) -> Json:
    answer = await api.put(f"/v1/{path}", json=body)
    assert answer.status_code in {200, 201}, answer.text
    return dict(answer.json())


async def shop(api: httpx.AsyncClient, queues: int = 1, **group: Any) -> None:
    """Topic `orders`, read by group `workers`."""
    await put(api, "topics/orders", queues=queues)
    await put(api, "groups/workers", **{"topic": "orders", **group})


async def publish(api: httpx.AsyncClient, *envelopes: Json, topic: str = "orders") -> list[Json]:
    """Publish in one batch, in order."""
    answer = await api.post(f"/v1/topics/{topic}/messages", json={"messages": envelopes})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["results"])


async def receive(api: httpx.AsyncClient, group: str = "workers", **wish: Any) -> Json:
    answer = await api.post(f"/v1/groups/{group}/receive", json=wish, timeout=70)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def take(api: httpx.AsyncClient, count: int, group: str = "workers", *, wait: float = 10.0) -> list[Json]:
    """So many messages, each acked as it came, whatever receives they need; fewer only if nothing more comes."""
    found: list[Json] = []
    receipts: list[str] = []
    while len(found) < count:
        wish = {"max": count - len(found), "wait": wait, "ack": receipts}
        told = await receive(api, group, **wish)
        if not told["messages"]:
            break
        found += told["messages"]
        # In queue mode a receipt is the batch's, in message mode each message's.
        lease = told.get("lease")
        receipts = [lease["receipt"]] if lease else [message["receipt"] for message in told["messages"]]
    if receipts:
        answer = await api.post(f"/v1/groups/{group}/ack", json={"receipts": receipts})
        assert answer.status_code == 200, answer.text
    return found


def body_of(message: Json) -> bytes:
    return base64.b64decode(message["bodyBase64"]) if "bodyBase64" in message else message["body"].encode()


async def lag(api: httpx.AsyncClient, group: str = "workers") -> Json:
    answer = await api.get(f"/v1/groups/{group}/lag")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def until(is_so: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + seconds
    while not await is_so():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.05)
