"""The HTTP server of one process: accepts connections, serves them, and stops without failing a request.

A client whose next request is on its way while its idle connection is closed gets a reset, and cannot know whether the
request was served. So a stop is gradual: from its beginning every response says `connection: close`, and idle
connections are closed only after a while (the patience). What remains is the race of any keep-alive time-out.
"""

import asyncio
import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator
from email.utils import formatdate

import structlog

from mqgate.http.server.connection import Connection
from mqgate.http.server.connections import Connections
from mqgate.http.server.exchange import AsgiApp
from mqgate.http.server.forwarded import Networks
from mqgate.http.server.listening import BACKLOG
from mqgate.settings import HttpSettings

__all__ = ["DRAIN_PATIENCE", "STOP_PATIENCE", "HttpServer"]

# Seconds until idle connections are closed at a stop. Busy clients send their next request sooner.
STOP_PATIENCE = 1.0
# The same after another worker has taken over.
DRAIN_PATIENCE = 5.0
_TICK = 0.05
_CHECK_INTERVAL = 1.0
_log = structlog.get_logger()


class HttpServer:
    """Serves an application on one listening socket."""

    def __init__(
        self,
        app: AsgiApp,
        settings: HttpSettings,
        *,
        started: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
        count_closed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.app = app
        self.settings = settings
        self.max_header_bytes = settings.max_header_bytes
        self.trusted_proxies = Networks(settings.trusted_proxies)
        self.connections = Connections(settings, self.trusted_proxies)
        # Every request calls it twice.
        self.set_eviction = self.connections.set_eviction
        self.date_line = b""
        self.is_stopping = False
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()
        self.count_closed = count_closed
        self._started = started
        self._stopping = stopping
        self._is_forced = False
        self._until = math.inf
        self._stop_requested = asyncio.Event()

    def admit(self, connection: Connection) -> bool:
        return self.connections.admit(connection, self.loop.time())

    def discard(self, connection: Connection) -> None:
        self.connections.discard(connection)

    async def serve(self, listener: socket.socket) -> None:
        """Serve until `leave` is called or the process gets SIGTERM or SIGINT."""
        self._update_date()
        server = await self.loop.create_server(lambda: Connection(self), sock=listener, backlog=BACKLOG)
        checking = asyncio.create_task(self._check_regularly())
        try:
            with self._signals():
                self._started()
                await self._stop_requested.wait()
                await self.shut_down(server, listener)
        finally:
            checking.cancel()
            await asyncio.wait((checking,))

    def leave(self, patience: float) -> None:
        """Start to stop: parked requests get their responses, running ones finish, idle connections are closed."""
        self._until = min(self._until, self.loop.time() + patience)
        if not self.is_stopping:
            self.is_stopping = True
            self._stopping()
            self._stop_requested.set()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                self.loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        """Stop gradually. A second Ctrl-C does not wait."""
        self._is_forced = number == signal.SIGINT and self.is_stopping
        self.leave(STOP_PATIENCE)

    async def shut_down(self, server: asyncio.Server, listener: socket.socket) -> None:
        """Stop accepting, let idle connections end, wait for running requests, abort what is left."""
        queued = list(_queued_connections(listener))
        server.close()
        listener.close()
        for connection in queued:
            await self.loop.connect_accepted_socket(lambda: Connection(self), connection)
        await self._wait_until(self._until)
        for client in self.connections:
            client.finish()
        await self._wait_until(self.loop.time() + self.settings.stop_timeout.total_seconds())
        for client in self.connections:
            client.abort("stopped")
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    async def _wait_until(self, deadline: float) -> None:
        while (self.connections or self.tasks) and self.loop.time() < deadline and not self._is_forced:  # noqa: ASYNC110 - ends of connections set no event; this runs once per stop
            await asyncio.sleep(_TICK)

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            self._update_date()
            try:
                for _ in self.connections.check_deadlines(self.loop.time()):
                    await asyncio.sleep(0)
            except Exception:  # noqa: BLE001 - a fault of one connection must not end the deadlines of all
                _log.exception("deadline check failed")

    def _update_date(self) -> None:
        self.date_line = f"date: {formatdate(usegmt=True)}\r\n".encode("ascii")


def _queued_connections(listener: socket.socket) -> Iterator[socket.socket]:
    """Accept the connections in the queue of a socket. Closing the socket would reset them."""
    # The queue is empty, new connections arrive all the time, or there are no file descriptors left.
    with contextlib.suppress(OSError):
        for _ in range(BACKLOG):
            connection, _ = listener.accept()
            connection.setblocking(False)
            yield connection
