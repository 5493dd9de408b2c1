"""One pipelined connection: commands of one event loop iteration are sent in one write, replies arrive in order."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

__all__ = ["RedisConnection", "ReplyError"]

ReplyError = hiredis.ReplyError
_INCOMPLETE = object()
# Deadlines are checked this often per timeout, so a call times out at most a tenth of the timeout late.
_CHECKS_PER_TIMEOUT = 10


class _Call:
    """A command whose reply is pending.

    `late` receives a reply that arrives after the caller gave up, or None if the reply is lost.
    """

    __slots__ = ("deadline", "future", "late")

    def __init__(self, future: "asyncio.Future[Any]", deadline: float, late: Callable[[Any], None] | None) -> None:
        self.future = future
        self.deadline = deadline
        self.late = late


class RedisConnection(asyncio.Protocol):
    """Protocol that takes over the transport of an authenticated session. `lost` is called once when it breaks."""

    def __init__(self, timeout: float, lost: Callable[["RedisConnection"], None]) -> None:
        self._timeout = timeout
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._calls: deque[_Call] = deque()
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        # The run id of the server.
        self.run = ""

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def take_over(self, writer: asyncio.StreamWriter) -> None:
        """Use the transport of `writer`. The writer is kept because it closes the socket when it is collected."""
        self._writer = writer
        self._transport = writer.transport
        writer.transport.set_protocol(self)

    def send(
        self, command: tuple[Any, ...], late: Callable[[Any], None] | None = None, deadline: float | None = None
    ) -> "asyncio.Future[Any]":
        """Return a future of the reply. An error reply is a ReplyError as a value.

        The future fails with ConnectionError if the connection breaks first, and with TimeoutError at the deadline (by
        time.monotonic(); without one, after the default timeout).
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
            self._timer = self._loop.call_later(self._timeout / _CHECKS_PER_TIMEOUT, self._check_deadlines)
        return future

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _INCOMPLETE:
            call = self._calls.popleft()
            if not call.future.done():
                call.future.set_result(reply)
            elif call.late is not None:
                call.late(reply)

    def _check_deadlines(self) -> None:
        """Fail calls past their deadline. Close the connection if the oldest is overdue by another timeout."""
        self._timer = None
        now = time.monotonic()
        for call in self._calls:
            if call.deadline <= now and not call.future.done():
                call.future.set_exception(TimeoutError("no reply before the deadline"))
        if self._calls:
            if self._calls[0].deadline + self._timeout < now:
                self.close()
                return
            self._timer = self._loop.call_later(self._timeout / _CHECKS_PER_TIMEOUT, self._check_deadlines)

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
                call.future.set_exception(ConnectionError("the connection was lost"))
            elif call.late is not None:
                call.late(None)
        self._lost(self)
