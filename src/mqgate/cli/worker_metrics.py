"""Metrics of all workers in one scrape, whichever worker receives it.

Every worker serves its own metrics on a Unix socket in the private directory of the supervisor. The worker that is
scraped reads the sockets of the others. So all counters of a machine are in every scrape, with the label `worker`, and
a balancer or a scraper needs to know one port only.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from mqgate.telemetry.exposition import merge, worker_states

__all__ = ["WorkerMetrics"]

_TIMEOUT = 1.0
_log = structlog.get_logger()


class WorkerMetrics:
    """Server and client of the sockets. `render` returns the metrics of this worker."""

    def __init__(self, directory: Path, number: int, render: Callable[[], bytes]) -> None:
        self._directory = directory
        self._number = str(number)
        self._render = render
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Serve this worker's metrics, in place of an earlier process of the same number."""
        listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        own = self._directory / f".{os.getpid()}"
        listener.bind(str(own))
        self._server = await asyncio.start_unix_server(self._respond, sock=listener)
        # Only now, so that a socket with a number accepts connections.
        own.rename(self._directory / self._number)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def render_all(self) -> bytes:
        """Return the metrics of all workers. One that does not respond within a second is reported as down."""
        names = {path.name for path in self._directory.iterdir() if not path.name.startswith(".")} - {self._number}
        others = sorted(names)
        texts = await asyncio.gather(*map(self._read, others))
        found = dict(zip(others, texts, strict=True))
        states = {self._number: True} | {name: text is not None for name, text in found.items()}
        return merge([self._render(), *(text for text in texts if text is not None), worker_states(states)])

    async def _respond(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(self._render())
            await writer.drain()
        except OSError:
            _log.debug("metrics not sent: reader disconnected")
        finally:
            writer.close()

    async def _read(self, name: str) -> bytes | None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                reader, writer = await asyncio.open_unix_connection(str(self._directory / name))
                try:
                    return await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            # The worker ended and is being restarted, or its event loop is blocked.
            _log.warning("metrics of a worker not read", other=name)
            return None
