"""A wire between a gateway and a server of its own that can go silent or break, in one direction at a time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from ssl import SSLContext
from urllib.parse import urlsplit


class Wire:
    """Listens on `url`, passes on to a real server."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._is_passing = asyncio.Event()
        self._is_passing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.url = ""

    def mute(self) -> None:
        """Let questions through, and hold back every answer."""
        self._is_passing.clear()

    def unmute(self) -> None:
        self._is_passing.set()

    def cut(self) -> None:
        """Break every connection; new ones are taken."""
        for writer in self._writers:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def open(self, ssl: SSLContext | None = None) -> AsyncIterator["Wire"]:
        """With a context it speaks TLS to those who come, not to the server."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=ssl)
        port = server.sockets[0].getsockname()[1]
        user, at, _ = self._target.netloc.rpartition("@")
        self.url = self._target._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()
        try:
            yield self
        finally:
            server.close()
            self.cut()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        back_reader, back_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._writers |= {writer, back_writer}
        for source, sink, is_answer in ((reader, back_writer, False), (back_reader, writer, True)):
            task = asyncio.create_task(self._pass(source, sink, is_answer=is_answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if is_answer:
                    await self._is_passing.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
        self._writers.discard(sink)
