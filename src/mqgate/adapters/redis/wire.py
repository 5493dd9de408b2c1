"""One connection: commands of one turn of the loop go out in one write, answers come back in their order."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

__all__ = ["ReplyError", "Wire"]

ReplyError = hiredis.ReplyError
_NOTHING = object()
# How often in the usual time those who wait too long are looked for: so much later they are told.
_LOOKS = 10


class _Call:
    """A command under way. `late` hears the answer if nobody waits for it any more; None: it is lost."""

    __slots__ = ("deadline", "future", "late")

    def __init__(self, future: "asyncio.Future[Any]", deadline: float, late: Callable[[Any], None] | None) -> None:
        self.future = future
        self.deadline = deadline
        self.late = late


class Wire(asyncio.Protocol):
    """Put onto a transport on which a session is open; `lost` is told once when it breaks."""

    def __init__(self, timeout: float, lost: Callable[["Wire"], None]) -> None:
        self._timeout = timeout
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._calls: deque[_Call] = deque()
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        # Which life of the server it leads to.
        self.run = ""

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def take_over(self, writer: asyncio.StreamWriter) -> None:
        """From here on the socket is ours; its writer closes it when it is collected, so it stays with us."""
        self._writer = writer
        self._transport = writer.transport
        writer.transport.set_protocol(self)

    def send(
        self, command: tuple[Any, ...], late: Callable[[Any], None] | None = None, deadline: float | None = None
    ) -> "asyncio.Future[Any]":
        """The answer to come: a value, a ReplyError as a value, ConnectionError if the connection breaks before it.

        TimeoutError at the deadline, by time.monotonic(); without one, when the usual time is over.
        """
        future = self._loop.create_future()
        if self._transport is None:
            future.set_exception(ConnectionError("the connection is closed"))
            return future
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(hiredis.pack_command(command))
        self._calls.append(_Call(future, time.monotonic() + self._timeout if deadline is None else deadline, late))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout / _LOOKS, self._look)
        return future

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _NOTHING:
            call = self._calls.popleft()
            if not call.future.done():
                call.future.set_result(reply)
            elif call.late is not None:
                call.late(reply)

    def _look(self) -> None:
        """Who waited for too long is told; a server that is silent for twice as long is given up."""
        self._timer = None
        now = time.monotonic()
        for call in self._calls:
            if call.deadline <= now and not call.future.done():
                call.future.set_exception(TimeoutError("no answer in time"))
        if self._calls:
            if self._calls[0].deadline + self._timeout < now:
                self.close()
                return
            self._timer = self._loop.call_later(self._timeout / _LOOKS, self._look)

    def connection_lost(self, _: Exception | None) -> None:
        self._end()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._end()

    def _end(self) -> None:
        if self._transport is None:
            return
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(ConnectionError("the connection broke"))
            elif call.late is not None:
                call.late(None)
        self._lost(self)
