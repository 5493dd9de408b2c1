"""A gateway in this process, called step by step from synchronous code: the driver of the model tests.

The calls are those of /v1, over bare ASGI, so the models do not depend on the code below. One event loop lives as long
as the driver. `restart` closes the gateway and opens its directory again.
"""

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from typing import Any

from mqgate import bootstrap
from mqgate.settings import Settings, SqliteSettings
from mqgate.stack import Stack
from mqgate.testing.clock import ManualClock
from production_set import on_production

Json = dict[str, Any]
# RocketMQ, Redis and PostgreSQL, running.
Servers = tuple[Stack, Stack, Stack]


class GatewayDriver:
    """A gateway on the embedded engine, or on the distributed deployment under names of its own."""

    def __init__(self, servers: Servers | None = None) -> None:
        self.clock = ManualClock()
        self._places = ExitStack()
        directory = self._places.enter_context(tempfile.TemporaryDirectory())
        sqlite = SqliteSettings(directory=directory, tidy_interval=timedelta(hours=1), synchronous="normal")
        self._settings = Settings(sqlite=sqlite)
        if servers is not None:
            self._settings = self._places.enter_context(on_production(self._settings, *servers))
        self._loop = asyncio.new_event_loop()
        self._stack: AsyncExitStack
        self.gateway: bootstrap.Gateway
        self._open()

    def _open(self) -> None:
        self._stack = AsyncExitStack()
        opening = self._stack.enter_async_context(bootstrap.gateway(self._settings, wall_ms=self.clock))
        self.gateway = self._loop.run_until_complete(opening)

    def _close(self) -> None:
        self._loop.run_until_complete(self._stack.aclose())

    def restart(self) -> None:
        self._close()
        self._open()

    def close(self) -> None:
        self._close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._places.close()

    def delete_old_messages(self) -> int:
        """Run retention once."""
        assert self.gateway.retention is not None
        return self._loop.run_until_complete(self.gateway.retention.run_once())

    def call(self, method: str, path: str, body: object = None, query: str = "") -> tuple[int, Json]:
        """Send a request. Return the status and the JSON."""
        return self._loop.run_until_complete(self._call(method, path, body, query))

    def done(self, method: str, path: str, body: object = None, query: str = "") -> Json:
        """Send a request that must succeed."""
        status, response = self.call(method, path, body, query)
        assert 200 <= status < 300, (method, path, body, status, response)
        return response

    async def _call(self, method: str, path: str, body: object, query: str) -> tuple[int, Json]:
        raw = b"" if body is None else json.dumps(body).encode()
        events: list[Any] = [{"type": "http.request", "body": raw, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            if events:
                return events.pop()
            # The client is there and waits for its answer.
            return await asyncio.get_running_loop().create_future()

        async def send(event: Any) -> None:
            sent.append(event)

        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 5000),
        }
        await self.gateway.app(scope, receive, send)
        assert [event["type"] for event in sent] == ["http.response.start", "http.response.body"]
        response = sent[1]["body"]
        return sent[0]["status"], json.loads(response) if response else {}
