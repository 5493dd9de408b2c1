"""The context of a worker process: its inherited sockets, and its protocol with the supervisor.

Both use one socket pair. The worker sends `serving` when it accepts connections. The supervisor sends `drain` when
another worker has replaced this one. When the supervisor ends for any reason, the worker stops too.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path

from mqgate.cli.worker_process import DRAIN, SERVING
from mqgate.http.server.server import DRAIN_PATIENCE, STOP_PATIENCE, HttpServer

__all__ = ["WorkerContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """Number of the worker, its listening socket, its connection to the supervisor, and their private directory."""

    number: int
    listener: socket.socket
    channel: socket.socket
    directory: Path

    @staticmethod
    def parse(text: str) -> "WorkerContext":
        """Parse `number:listener:channel:directory`, of which the second and third are inherited file descriptors.

        Raise ValueError or OSError if the text or a descriptor is invalid.
        """
        *numbers, directory = text.split(":", 3)
        number, listener, channel = map(int, numbers)
        context = WorkerContext(
            number=number,
            listener=socket.socket(fileno=listener),
            channel=socket.socket(fileno=channel),
            directory=Path(directory),
        )
        context.listener.setblocking(False)
        context.channel.setblocking(False)
        return context

    def report_serving(self) -> None:
        # If the supervisor has ended, `follow` detects the closed channel.
        with contextlib.suppress(OSError):
            self.channel.send(SERVING)

    def follow(self, server: HttpServer) -> None:
        """Drain the server when the supervisor requests it, and stop it when the supervisor has ended."""
        loop = asyncio.get_running_loop()

        def read_command() -> None:
            try:
                command = self.channel.recv(len(DRAIN))
            except BlockingIOError:
                return
            except OSError:
                command = b""
            if not command:
                loop.remove_reader(self.channel)
            # Nothing waits for a replaced worker, so its idle connections are closed later.
            server.leave(DRAIN_PATIENCE if command else STOP_PATIENCE)

        loop.add_reader(self.channel, read_command)
