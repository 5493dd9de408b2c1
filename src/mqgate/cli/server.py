"""Uvicorn as we run it: stopped by signals without being killed by them, and without failing a request.

At a stop uvicorn closes idle connections at once. A client whose next request is on its way at that moment gets a
reset, and cannot know whether it was worked on. So connections are seen off: from the moment of the stop every answer
says `connection: close`, and an idle connection is closed by us only when it stayed idle for a while (the patience).
What is left is the race of any keep-alive timeout.
"""

import asyncio
import contextlib
import math
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mqgate.cli.listening import BACKLOG
from mqgate.core.errors import MalformedRequest
from mqgate.http.door import new_request_id
from mqgate.http.exchange import refuse

__all__ = ["FAREWELL", "KEEP_ALIVE", "Server"]

# Seconds until an idle connection is closed anyway; uvicorn's own default.
KEEP_ALIVE = 5
# Seconds that idle connections get at a stop that somebody waits for: busy clients come back sooner than this.
FAREWELL = 1.0
_TICK = 0.05
_CLOSE = (b"connection", b"close")


class _Protocol(HttpToolsProtocol):
    """Uvicorn's; what its parser refuses is answered as everything else is that we refuse."""

    def send_400_response(self, msg: str) -> None:
        answer = refuse(MalformedRequest(f"{msg} Header values are printable characters, methods those of HTTP."))
        head = {
            b"content-type": answer.content_type,
            b"content-length": b"%d" % len(answer.body),
            b"x-request-id": new_request_id().encode(),
            b"connection": b"close",
        }
        lines = b"".join(b"%b: %b\r\n" % pair for pair in (*self.server_state.default_headers, *head.items()))
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + answer.body)
        self.transport.close()


class Server(uvicorn.Server):
    """Serves an application on sockets that are given; `started` and `stopping` are told to it."""

    def __init__(
        self, app: Any, *, stop_timeout: float, started: Callable[[], None], stopping: Callable[[], None]
    ) -> None:
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=int(stop_timeout),
            backlog=BACKLOG,
        )
        config.load()
        super().__init__(config)
        self._started = started
        self._stopping = stopping
        self._until = math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then say so."""
        await super().startup(sockets)
        self._started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own would raise the signal again at the end; what was opened around us is to be closed first."""
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._stop, sign)
        try:
            yield
        finally:
            for sign in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(sign)

    def _stop(self, sign: int) -> None:
        """End politely. A second Ctrl-C does not wait."""
        self.force_exit = sign == signal.SIGINT and self.should_exit
        self.leave(FAREWELL)

    def leave(self, patience: float) -> None:
        """Not ready any more; answer those who wait; finish what runs; see connections off."""
        self._until = min(self._until, time.monotonic() + patience)
        if self.should_exit:
            return
        self.should_exit = True
        self._stopping()
        state = self.server_state
        # The headers of requests to come; uvicorn makes the second from the first once a second.
        self.config.encoded_headers.append(_CLOSE)
        state.default_headers = [*state.default_headers, _CLOSE]
        for connection in list(state.connections):
            cycle = getattr(connection, "cycle", None)
            # An answer whose head is out cannot say it any more: the one after it does.
            if cycle is not None and not cycle.response_started:
                connection.shutdown()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, let go of idle connections slowly, then as uvicorn does."""
        accepted = [connection for listener in sockets or () for connection in _last_of(listener)]
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        for connection in accepted:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        # Uvicorn tells nobody when a connection ends.
        while self.server_state.connections and time.monotonic() < self._until and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(_TICK)
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state={})  # type: ignore[no-any-return]


def _last_of(listener: socket.socket) -> Iterator[socket.socket]:
    """The connections that are queued: whoever is in the queue of a socket when it is closed gets a reset."""
    with contextlib.suppress(BlockingIOError):
        while True:
            yield listener.accept()[0]
