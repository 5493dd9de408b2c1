"""A worker's place under its supervisor: what it is handed down, what the two tell each other.

Over one socket pair. The worker says `serving` once it accepts connections; the supervisor says `drain` when another
one serves in its place. When the supervisor is gone, however it ended, the socket ends too: then so does the worker.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass

from mqgate.cli.worker_process import DRAIN, SERVING
from mqgate.http.server.server import DRAIN_PATIENCE, STOP_PATIENCE, HttpServer

__all__ = ["WorkerContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The worker's number, its listening socket, and the line to the supervisor."""

    number: int
    listener: socket.socket
    line: socket.socket

    @staticmethod
    def parse(text: str) -> "WorkerContext":
        """Of `number:listener:line`, the last two as inherited file descriptors; ValueError or OSError if not."""
        number, listener, line = map(int, text.split(":"))
        place = WorkerContext(number=number, listener=socket.socket(fileno=listener), line=socket.socket(fileno=line))
        place.listener.setblocking(False)
        place.line.setblocking(False)
        return place

    def tell_serving(self) -> None:
        # Nobody there to hear it: the line's end is noticed by whoever follows it.
        with contextlib.suppress(OSError):
            self.line.send(SERVING)

    def follow(self, server: HttpServer) -> None:
        """From now on drain when told to, and stop when there is no supervisor any more."""
        loop = asyncio.get_running_loop()

        def hear() -> None:
            try:
                told = self.line.recv(len(DRAIN))
            except BlockingIOError:
                return
            except OSError:
                told = b""
            if not told:
                loop.remove_reader(self.line)
            # Nobody waits for a worker that is replaced: its idle connections may keep their whole time.
            server.leave(DRAIN_PATIENCE if told else STOP_PATIENCE)

        loop.add_reader(self.line, hear)
