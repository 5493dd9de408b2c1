"""A round-robin balancer: every connection is forwarded to the next gateway that accepts it."""

import asyncio
import contextlib
from collections.abc import Sequence

__all__ = ["Balancer"]

_CHUNK = 1 << 16


class Balancer:
    """A balancer of connections. Each connection carries one request."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._next = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen, and return the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_CHUNK)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                upstream = await self._connected()
                if upstream is not None:
                    try:
                        await _joined((reader, writer), upstream)
                    finally:
                        upstream[1].close()
            finally:
                writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._ports:
            self._next += 1
            with contextlib.suppress(OSError):
                port = self._ports[self._next % len(self._ports)]
                return await asyncio.open_connection("127.0.0.1", port, limit=_CHUNK)
        return None


async def _joined(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Copy bytes in both directions until one side closes, then close the other."""
    ways = [asyncio.create_task(_carry(one[0], other[1])), asyncio.create_task(_carry(other[0], one[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
