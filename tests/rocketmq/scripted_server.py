"""A server on the loopback that does what a test says: it keeps what it received, and sends what it is told to."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from mqgate.rocketmq.remoting.command import Command, encode
from mqgate.rocketmq.remoting.frame import FrameReader

__all__ = ["HandClock", "Link", "ScriptedServer", "answer_to", "nothing_is_left", "turns_until"]

# Long enough for any machine; a test that waits for it has failed.
PATIENCE = 20.0


def answer_to(request: Command, code: int = 0, body: bytes = b"", **fields: str) -> bytes:
    """A frame that answers a request."""
    return encode(Command(code, request.opaque, fields, body, flag=1))


async def turns_until(is_so: Callable[[], Any]) -> None:
    """Let the loop turn until something is so that nobody announces."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


async def nothing_is_left() -> None:
    """Whoever is done leaves no task behind; sockets that are left warn by themselves."""
    assert asyncio.all_tasks() == {asyncio.current_task()}


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Link(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, server: "ScriptedServer") -> None:
        self._server = server
        self._reader = FrameReader()
        self.received = bytearray()
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._server.is_deaf:
            # A turn later: uvloop begins to read after this, whatever was said here.
            asyncio.get_running_loop().call_soon(self.transport.pause_reading)
        self._server.links.append(self)
        self._server.stirred()

    def data_received(self, data: bytes) -> None:
        self.received += data
        for command in self._reader.feed(data):
            self._server.requests.append((self, command))
            reply = self._server.reply
            frame = None if reply is None else reply(command)
            if frame is not None:
                self.send(frame)
        self._server.stirred()

    def connection_lost(self, _: Exception | None) -> None:
        self.lost.set()
        self._server.stirred()

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def hang_up(self) -> None:
        self.transport.abort()


class ScriptedServer:
    """`reply` answers each request at once, or not; without it the test answers by itself."""

    def __init__(self, reply: Callable[[Command], bytes | None] | None = None) -> None:
        self.reply = reply
        self.is_deaf = False
        self.links: list[Link] = []
        self.requests: list[tuple[Link, Command]] = []
        self._server: asyncio.Server | None = None
        self._port = 0
        self._stirred = asyncio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen; at the same address again after a stop."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Link(self), "127.0.0.1", self._port, ssl=tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything; connections are reset."""
        if self._server is None:
            return
        self._server.close()
        for link in self.links:
            link.hang_up()
        await self._server.wait_closed()
        self._server = None
        for link in self.links:
            await asyncio.wait_for(link.lost.wait(), PATIENCE)

    def stirred(self) -> None:
        self._stirred.set()

    async def until(self, is_so: Callable[[], Any]) -> None:
        """Wait for what a test expects of what arrived here."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self._stirred.clear()
                await self._stirred.wait()

    async def received(self, count: int = 1) -> list[tuple[Link, Command]]:
        """The first requests, once there are so many."""
        await self.until(lambda: len(self.requests) >= count)
        return self.requests[:count]
