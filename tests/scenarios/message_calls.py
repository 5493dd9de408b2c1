"""Calls of /v1 for the message-mode scenarios, with clients that wait and clients that disconnect."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from mqgate import bootstrap

Json = dict[str, Any]


async def shop(api: httpx.AsyncClient, queues: int = 1, **group: Any) -> None:
    """Topic `orders`, read by group `workers` in message mode."""
    await put(api, "topics/orders", queues=queues)
    await put(api, "groups/workers", **{"topic": "orders", **group})


async def two_leased(api: httpx.AsyncClient) -> list[str]:
    """Return the receipts of the two queues. Each queue has another message behind the leased one."""
    await shop(api, queues=2, mode="queue")
    held: dict[str, str] = {}
    number = 0
    while len(held) < 2:
        number += 1
        (stored,) = await publish(api, "x", key=f"key-{number}")
        if stored["queue"] not in held:
            await publish(api, "x", key=f"key-{number}")
            held[stored["queue"]] = (await receive(api, max=1))["lease"]["receipt"]
    return list(held.values())


async def put(api: httpx.AsyncClient, path: str, **body: Any) -> Json:
    response = await api.put(f"/v1/{path}", json=body)
    assert response.status_code in {200, 201}, response.text
    return dict(response.json())


async def publish(api: httpx.AsyncClient, *bodies: Any, topic: str = "orders", **envelope: Any) -> list[Json]:
    """Publish in one batch, in order."""
    response = await api.post(
        f"/v1/topics/{topic}/messages", json={"messages": [{"body": body, **envelope} for body in bodies]}
    )
    assert response.status_code == 200, response.text
    return list(response.json()["results"])


async def send(api: httpx.AsyncClient, topic: str = "orders", **envelope: Any) -> httpx.Response:
    """Publish one envelope and return the response, whatever it is."""
    return await api.post(f"/v1/topics/{topic}/messages", json={"body": "hello", **envelope})


async def receive(api: httpx.AsyncClient, group: str = "workers", **options: Any) -> Json:
    response = await api.post(f"/v1/groups/{group}/receive", json=options, timeout=70)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def take(api: httpx.AsyncClient, group: str = "workers", **options: Any) -> list[Json]:
    """Return the messages of one receive."""
    return list((await receive(api, group, **options))["messages"])


async def settle(
    api: httpx.AsyncClient, verb: str, message: Json | str, group: str = "workers", **more: Any
) -> httpx.Response:
    """Return the response of a settlement."""
    receipt = message if isinstance(message, str) else message["receipt"]
    return await api.post(f"/v1/groups/{group}/{verb}", json={"receipt": receipt, **more})


async def outcome(
    api: httpx.AsyncClient, verb: str, message: Json | str, group: str = "workers", **more: Any
) -> tuple[int, str]:
    """Return the status and the outcome of a settlement."""
    response = await settle(api, verb, message, group, **more)
    return response.status_code, response.json()["outcome"]


async def ack(api: httpx.AsyncClient, *messages: Json, group: str = "workers") -> None:
    response = await api.post(
        f"/v1/groups/{group}/ack", json={"receipts": [message["receipt"] for message in messages]}
    )
    assert response.status_code == 200, response.text


async def lag(api: httpx.AsyncClient, group: str = "workers") -> Json:
    response = await api.get(f"/v1/groups/{group}/lag")
    assert response.status_code == 200, response.text
    return dict(response.json())


async def counts(api: httpx.AsyncClient, group: str = "workers") -> tuple[int, int, int]:
    """Return the ready, leased and waiting counts."""
    found = await lag(api, group)
    return found["ready"], found["leased"], found["waiting"]


async def dead(api: httpx.AsyncClient, group: str = "workers", **query: Any) -> list[Json]:
    response = await api.get(f"/v1/groups/{group}/dead-letters", params={"limit": 1000, **query})
    assert response.status_code == 200, response.text
    return list(response.json()["items"])


async def dead_ids(api: httpx.AsyncClient, group: str = "workers") -> list[str]:
    return [letter["id"] for letter in await dead(api, group)]


async def operate(api: httpx.AsyncClient, verb: str, group: str = "workers", **body: Any) -> Json:
    response = await api.post(f"/v1/groups/{group}/{verb}", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def metric(api: httpx.AsyncClient, name: str) -> float:
    """Return a sample of /metrics by name and labels, or 0 if it was never counted."""
    lines = (await api.get("/metrics")).text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)


def bodies(messages: Sequence[Json]) -> list[str]:
    return [message["body"] for message in messages]


def refused(response: httpx.Response, status: int, code: str) -> Json:
    """Return the stable code of a refused request, after checking the status."""
    assert response.status_code == status, response.text
    problem = dict(response.json())
    assert problem["code"] == code, problem
    return problem


async def until(is_so: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until a condition is true, with short pauses."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.001)


async def parked(gateway: bootstrap.Gateway, count: int) -> None:
    """Wait until this many receives are parked."""
    await until(lambda: gateway.long_poll.parked == count)


def counted_steps(gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the messages that each call to the lease store requests from now on."""
    steps: list[int] = []
    acquire = type(gateway.leases).acquire

    async def counted(store: Any, request: Any) -> Any:
        steps.append(request.max_count)
        return await acquire(store, request)

    monkeypatch.setattr(type(gateway.leases), "acquire", counted)
    return steps


class Call:
    """A receive over bare ASGI whose client can disconnect."""

    def __init__(
        self, gateway: bootstrap.Gateway, group: str = "workers", *, is_disconnected: bool = False, **options: Any
    ) -> None:
        self._body = json.dumps(options).encode()
        self._is_body_read = False
        self._gone = asyncio.Event()
        self._sent: list[Json] = []
        if is_disconnected:
            self._gone.set()
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/v1/groups/{group}/receive",
            "query_string": b"",
            "headers": [(b"content-length", str(len(self._body)).encode())],
            "client": ("127.0.0.1", 5000),
        }
        self.task = asyncio.ensure_future(gateway.app(scope, self._receive, self._send))

    async def _receive(self) -> Json:
        if not self._is_body_read:
            self._is_body_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Any) -> None:
        self._sent.append(event)

    def disconnect(self) -> None:
        self._gone.set()

    async def response(self) -> Json | None:
        """Return the response, or None if the client had disconnected."""
        await self.task
        if not self._sent:
            return None
        assert self._sent[0]["status"] == 200, self._sent[1]["body"]
        return dict(json.loads(self._sent[1]["body"]))

    async def messages(self) -> list[Json]:
        response = await self.response()
        assert response is not None, "the client had disconnected"
        return list(response["messages"])
