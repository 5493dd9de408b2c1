"""A server on loopback that is controlled by a test. It records all requests."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from mqgate.rocketmq.remoting.command import Command, encode
from mqgate.rocketmq.remoting.frame import FrameReader

__all__ = ["Link", "ManualClock", "ScriptedServer", "assert_no_task_left", "loop_until", "response_to"]

# Long enough for any machine. A test that waits this long has failed.
PATIENCE = 20.0


def response_to(request: Command, code: int = 0, body: bytes = b"", **fields: str) -> bytes:
    """Return the frame of a response to a request."""
    return encode(Command(code, request.opaque, fields, body, flag=1))


async def loop_until(condition: Callable[[], Any]) -> None:
    """Run the event loop until a condition is true that has no event."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


async def assert_no_task_left() -> None:
    """Assert that no task is left. Sockets that are left raise warnings."""
    assert asyncio.all_tasks() == {asyncio.current_task()}


class ManualClock:
    """A clock that is moved by a test."""

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
        if self._server.reads_nothing:
            # In the next iteration, because uvloop starts to read after this callback.
            asyncio.get_running_loop().call_soon(self.transport.pause_reading)
        self._server.links.append(self)
        self._server.notify()

    def data_received(self, data: bytes) -> None:
        self.received += data
        for command in self._reader.feed(data):
            self._server.requests.append((self, command))
            reply = self._server.reply
            frame = None if reply is None else reply(command)
            if frame is not None:
                self.send(frame)
        self._server.notify()

    def connection_lost(self, _: Exception | None) -> None:
        self.lost.set()
        self._server.notify()

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def abort(self) -> None:
        self.transport.abort()


class ScriptedServer:
    """A server whose `reply` returns the response to each request, or None. Without it the test sends responses."""

    def __init__(self, reply: Callable[[Command], bytes | None] | None = None) -> None:
        self.reply = reply
        self.reads_nothing = False
        self.links: list[Link] = []
        self.requests: list[tuple[Link, Command]] = []
        self._server: asyncio.Server | None = None
        self._port = 0
        self._changed = asyncio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen. After a stop it listens at the same address again."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Link(self), "127.0.0.1", self._port, ssl=tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and reset all connections."""
        if self._server is None:
            return
        self._server.close()
        for link in self.links:
            link.abort()
        await self._server.wait_closed()
        self._server = None
        for link in self.links:
            await asyncio.wait_for(link.lost.wait(), PATIENCE)

    def notify(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until a condition on the received requests or connections is true."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def received(self, count: int = 1) -> list[tuple[Link, Command]]:
        """Wait for `count` requests and return them."""
        await self.until(lambda: len(self.requests) >= count)
        return self.requests[:count]
