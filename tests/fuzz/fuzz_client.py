"""A client that sends bytes as they are, on one connection after the other."""

import asyncio
import contextlib
from typing import NamedTuple

__all__ = ["FuzzClient", "NoResponse", "Reply"]

_WITHOUT_BODY = {204, 304}


class NoResponse(Exception):
    """The gateway closed the connection, or did not respond in time."""


class Reply(NamedTuple):
    status: int
    body: bytes


class FuzzClient:
    """One connection, opened again whenever the gateway closes it."""

    def __init__(self, port: int, patience: float) -> None:
        self._port = port
        self._patience = patience
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def exchange(self, method: bytes, request: bytes) -> Reply:
        """Return the response; NoResponse if there is none, or a part of one."""
        try:
            async with asyncio.timeout(self._patience):
                if self._writer is None:
                    self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                # Not drained: the gateway may refuse a body before it has read all of it.
                self._writer.write(request)
                return await self._reply(method)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as error:
            await self.close()
            raise NoResponse(repr(error)) from error

    async def _reply(self, method: bytes) -> Reply:
        status = 100
        while status < 200:
            head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
            status = int(head[9:12])
        if method == b"HEAD" or status in _WITHOUT_BODY:
            body = b""
        elif b"\r\ntransfer-encoding: chunked" in head:
            body = await self._chunks()
        else:
            length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            body = await self._reader.readexactly(int(length))
        if b"\r\nconnection: close" in head:
            await self.close()
        return Reply(status, body)

    async def _chunks(self) -> bytes:
        parts = []
        while size := int((await self._reader.readuntil(b"\r\n"))[:-2], 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None
