"""A server in this process, and clients that send it exactly the bytes that a test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from mqgate.http.server.listening import listen
from mqgate.http.server.server import STOP_PATIENCE, HttpServer
from mqgate.settings import HttpSettings

Asgi = Callable[[Any, Any, Any], Awaitable[None]]
FAR_FUTURE = 1e9


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def response(self) -> Response:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Response(int(first.split(" ")[1]), headers, body)

    async def exchange(self, data: bytes) -> Response:
        await self.send(data)
        return await self.response()

    async def rest(self) -> bytes:
        """Return what arrives until the server closes the connection."""
        try:
            return await self._reader.read()
        except ConnectionResetError:
            return b""

    def half_close(self) -> None:
        """Close the sending side only."""
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


class Served:
    """A running server. `closed` counts the connections that it closed, by reason."""

    def __init__(self, app: Asgi, settings: HttpSettings) -> None:
        self._listener = listen("127.0.0.1", 0, 1)[0]
        self.address: tuple[str, int] = self._listener.getsockname()
        self.closed: list[str] = []
        self._started = asyncio.Event()
        self.server = HttpServer(app, settings, started=self._started.set, count_closed=self.closed.append)
        self._clients: list[RawClient] = []
        self._serving: asyncio.Task[None]

    async def start(self) -> None:
        self._serving = asyncio.create_task(self.server.serve(self._listener))
        await self._started.wait()

    async def stop(self) -> None:
        for client in self._clients:
            client.close()
        self.server.leave(STOP_PATIENCE)
        await self._serving

    async def connect(self, address: str = "127.0.0.1") -> RawClient:
        client = RawClient(*await asyncio.open_connection(*self.address, local_addr=(address, 0)))
        self._clients.append(client)
        return client

    async def connections(self, count: int) -> None:
        """Wait until the server has this many connections."""
        while len(self.server.connections) != count:  # noqa: ASYNC110 - the server sets no event for this
            await asyncio.sleep(0.001)

    def pass_time(self, seconds: float = FAR_FUTURE) -> None:
        """Check the deadlines as if this much time had passed."""
        for _ in self.server.connections.check_deadlines(self.server.loop.time() + seconds):
            pass


@asynccontextmanager
async def served(app: Asgi, **settings: Any) -> AsyncIterator[Served]:
    server = Served(app, HttpSettings(**{"stop_timeout": timedelta(seconds=5), **settings}))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a state for which the server sets no event."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)


async def respond(send: Any, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Any) -> bytes | None:
    """Return the whole body, or None if the client disconnected."""
    chunks = []
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        chunks.append(event["body"])
        if not event["more_body"]:
            return b"".join(chunks)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Respond with method, path and body."""
    body = await read_body(receive)
    if body is not None:
        await respond(send, f"{scope['method']} {scope['path']} ".encode() + body)


async def refuse_early(scope: Any, receive: Any, send: Any) -> None:
    """Respond without reading the body."""
    await respond(send, b"no", 401)


def post(body: bytes, path: str = "/", *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def park(gone: list[str], go: asyncio.Event | None = None) -> Asgi:
    """Return an application that responds to /park when the client disconnects or `go` is set, and echoes others."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/park":
            await echo(scope, receive, send)
            return
        await read_body(receive)
        leaving = asyncio.ensure_future(receive())
        going = asyncio.ensure_future((go or asyncio.Event()).wait())
        await asyncio.wait((leaving, going), return_when=asyncio.FIRST_COMPLETED)
        if leaving.done():
            gone.append(scope["path"])
        else:
            await respond(send, b"parked")
        leaving.cancel()
        going.cancel()

    return app


def get(path: str = "/") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
