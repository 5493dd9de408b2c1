"""A gateway in this process, called step by step from code that is not async: what model tests drive.

The calls are those of /v1, over bare ASGI: whatever lies below may be rebuilt without touching a model. One event
loop lives as long as the driver; `restart` closes the gateway and opens its directory again.
"""

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import uuid4

from mqgate import bootstrap
from mqgate.settings import LogSettings, RocketMQSettings, Settings, SqliteSettings
from mqgate.testing.clock import ManualClock

Json = dict[str, Any]


class GatewayDriver:
    """On the embedded engine, or on the RocketMQ whose name server is given, in a name space of its own."""

    def __init__(self, name_server: str | None = None) -> None:
        self.clock = ManualClock()
        self._directory = tempfile.TemporaryDirectory()
        sqlite = SqliteSettings(directory=self._directory.name, tidy_interval=3600.0, synchronous="normal")
        self._settings = replace(Settings(), sqlite=sqlite)
        if name_server is not None:
            rocketmq = RocketMQSettings(name_servers=(name_server,), cluster="one", namespace=uuid4().hex[:8])
            self._settings = replace(self._settings, log=LogSettings(engine="rocketmq"), rocketmq=rocketmq)
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
        self._directory.cleanup()

    def forget_old_messages(self) -> int:
        """One run of retention."""
        assert self.gateway.retention is not None
        return self._loop.run_until_complete(self.gateway.retention.run_once())

    def call(self, method: str, path: str, body: object = None, query: str = "") -> tuple[int, Json]:
        """One request; its status and its JSON."""
        return self._loop.run_until_complete(self._call(method, path, body, query))

    def done(self, method: str, path: str, body: object = None, query: str = "") -> Json:
        """One request that must go well."""
        status, answer = self.call(method, path, body, query)
        assert 200 <= status < 300, (method, path, body, status, answer)
        return answer

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
        answer = sent[1]["body"]
        return sent[0]["status"], json.loads(answer) if answer else {}
