"""HTTP with one connection per request, so that a balancer chooses each time and a client can disconnect anywhere."""

import asyncio
from typing import Any, NamedTuple

import msgspec

__all__ = ["Answer", "Cut", "Http"]


class Cut(Exception):
    """There was no complete response. The request may have been executed."""


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def code(self) -> str:
        """The error code of an unsuccessful response."""
        return str(self.body.get("code", self.status)) if isinstance(self.body, dict) else str(self.status)


class Http:
    def __init__(self, port: int, *, patience: float) -> None:
        self._port = port
        self._patience = patience

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        """Return the complete response, or raise Cut."""
        try:
            async with asyncio.timeout(self._patience):
                raw = await self._exchange(method, path, body)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            raise Cut(type(error).__name__) from error
        status, content = raw
        return Answer(status, msgspec.json.decode(content) if content else None)

    async def hang_up(self, path: str, body: Any, *, after: int, patience: float) -> None:
        """Send a request, and disconnect after `after` bytes of the response or after the time limit."""
        try:
            async with asyncio.timeout(patience):
                reader, writer = await self._sent("POST", path, body)
                try:
                    await reader.readexactly(after)
                finally:
                    writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return

    async def _exchange(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        reader, writer = await self._sent(method, path, body)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            status, _, headers = head.partition("\r\n")
            length = next(line[15:] for line in headers.split("\r\n") if line.startswith("content-length:"))
            return int(status.split()[1]), await reader.readexactly(int(length))
        except StopIteration:
            raise ValueError("a response without content-length") from None
        finally:
            writer.close()

    async def _sent(self, method: str, path: str, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        content = b"" if body is None else msgspec.json.encode(body)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n".encode()
            + content
        )
        return reader, writer
