"""One connection of the server, and h11 as a server, which both read the same bytes from memory."""

import asyncio
from typing import Any, NamedTuple

import h11
from raw_client import read_body

from mqgate.http.exchange import Response
from mqgate.http.server.connection import Connection
from mqgate.http.server.server import HttpServer
from mqgate.settings import HttpSettings

__all__ = ["Verdict", "of_h11", "of_server"]

# The tasks of three pipelined requests end within these turns of the event loop: each takes two.
_TURNS = 12


class Verdict(NamedTuple):
    """The complete requests (method, target, body), and whether the rest of the bytes was rejected."""

    requests: list[tuple[bytes, bytes, bytes]]
    is_rejected: bool


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._is_closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


async def of_server(parts: list[bytes]) -> Verdict:
    """Return what the application of our server gets. Each response is sent after its request is complete."""
    requests: list[tuple[bytes, bytes, bytes]] = []

    async def app(scope: Any, receive: Any, _send: Any) -> None:
        body = await read_body(receive)
        if body is not None:
            target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
            requests.append((scope["method"].encode(), target, body))
            scope["mqgate.direct"].respond(Response(200, b"ok"), "a1")

    server = HttpServer(app, HttpSettings())
    transport = _Transport()
    connection = Connection(server)
    connection.connection_made(transport)
    for part in parts:
        if not transport.is_closing():
            connection.data_received(part)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    is_rejected = b"HTTP/1.1 4" in transport.written
    connection.connection_lost(None)
    if server.tasks:
        await asyncio.wait(server.tasks)
    return Verdict(requests, is_rejected)


def of_h11(parts: list[bytes]) -> Verdict:
    """Return what an application on h11 gets."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    requests: list[tuple[bytes, bytes, bytes]] = []
    head: h11.Request | None = None
    body = b""
    try:
        for part in parts:
            connection.receive_data(part)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                if isinstance(event, h11.Request):
                    head, body = event, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage) and head is not None:
                    requests.append((head.method, head.target, body))
                    connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                    connection.send(h11.EndOfMessage())
                    if connection.our_state is not h11.DONE:
                        return Verdict(requests, is_rejected=False)
                    connection.start_next_cycle()
    except h11.RemoteProtocolError:
        return Verdict(requests, is_rejected=True)
    return Verdict(requests, is_rejected=False)
