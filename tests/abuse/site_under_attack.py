"""The gateway that is attacked, its client with a key, and what can be read about both."""

import asyncio
import json
import os
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from mqgate.testing.server_process import ServerProcess

__all__ = ["Caller", "Footprint", "Site"]

_PATIENCE = 30.0
# Hundredths of a second of CPU time in a tenth of a second.
_BUSY_TICKS = 3


class Footprint(NamedTuple):
    """What the gateway holds. Memory in KiB."""

    rss: int
    peak: int
    files: int
    connections: int


class Caller:
    """One connection of a client with a key. Any response but a success is an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        self._reader = reader
        self._writer = writer
        self._authorization = f"Authorization: Bearer {key}\r\n" if key else ""

    @staticmethod
    async def connect(port: int, key: str = "") -> "Caller":
        async with asyncio.timeout(_PATIENCE):
            return Caller(*await asyncio.open_connection("127.0.0.1", port), key)

    async def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the body of the response. RuntimeError if it is not a success, TimeoutError after 30 s."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{self._authorization}Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        async with asyncio.timeout(_PATIENCE):
            received = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = re.search("content-length: ([0-9]+)", received)
            content = await self._reader.readexactly(int(length[1]) if length else 0)
        if received.split()[1][0] != "2":
            raise RuntimeError(f"{method} {path}: {received.split()[1]} {content[:500]!r}")
        return content

    async def publish(self, body: bytes = b"hello") -> float:
        """Publish a message. Return the seconds that it took."""
        began = time.perf_counter()
        await self.call("POST", "/v1/topics/orders/messages", body)
        return time.perf_counter() - began

    def close(self) -> None:
        self._writer.close()


class Site:
    """A gateway on the embedded engine with one admin key."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        values = {
            name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in settings.items()
        }
        environment = {f"MQGATE_HTTP_{name.upper()}": str(value) for name, value in values.items()}
        # Latencies are to show the gateway, not the disk.
        self._process = ServerProcess(directory, MQGATE_SQLITE_SYNCHRONOUS="normal", **environment)
        self.port = self._process.port
        self.key = ""

    async def open(self) -> None:
        await asyncio.to_thread(self._process.start)
        caller = await self.connect()
        await caller.call("PUT", "/v1/topics/orders", b"{}")
        self.key = json.loads(await caller.call("POST", "/v1/keys", b'{"role": "admin"}'))["key"]
        caller.close()

    async def connect(self) -> Caller:
        return await Caller.connect(self.port, self.key)

    async def check_health(self) -> None:
        """Call the health check as a balancer does: without a key, on a new connection."""
        caller = await Caller.connect(self.port)
        await caller.call("GET", "/livez")
        caller.close()

    async def settled(self) -> None:
        """Wait until the gateway has accepted the connections of an attack: until it is mostly idle, at most 10 s."""
        deadline = time.monotonic() + 10
        used, busy = self._cpu_ticks(), _BUSY_TICKS
        while busy >= _BUSY_TICKS and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            now = self._cpu_ticks()
            used, busy = now, now - used

    def _cpu_ticks(self) -> int:
        user, system = Path(f"/proc/{self._process.process.pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
        return int(user) + int(system)

    async def closed_connections(self) -> dict[str, int]:
        """Return how many connections the gateway has closed, by reason."""
        found = re.findall(r'mqgate_connections_closed_total{.*?reason="(\w+)".*?} ([0-9.]+)', await self._metrics())
        return {reason: int(float(count)) for reason, count in found}

    async def footprint(self) -> Footprint:
        connections = re.search(r"^mqgate_connections(?:{.*})? ([0-9.]+)", await self._metrics(), re.MULTILINE)
        assert connections is not None
        pid = self._process.process.pid
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
        rss, peak = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "VmHWM"))  # type: ignore[index]
        # The connection that asks counts in both.
        return Footprint(rss, peak, len(os.listdir(f"/proc/{pid}/fd")) - 1, int(float(connections[1])) - 1)  # noqa: PTH208 - a count

    async def _metrics(self) -> str:
        caller = await self.connect()
        try:
            return (await caller.call("GET", "/metrics")).decode()
        finally:
            caller.close()

    def close(self) -> None:
        self._process.kill()
