"""One connection to a server: many requests at once, answers in any order.

- The frames of one turn of the loop leave in one write.
- Every request has a deadline, and waiting until the connection takes it counts.
- A connection on which nothing arrives is asked something every few seconds. If nothing at all arrives while a request
  waits in vain, then the connection is half open, and ends. Where the request's deadline is too short to tell, a
  question waits for the rest of the time.
- When the connection ends, everything that waits on it fails at once with NoResponse.
- A server that is leaving gets no new requests, and answers what it has.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast

from mqgate.rocketmq.errors import NoResponse, NotSent, RemoteProtocolError
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.command import Command, encode, encode_request
from mqgate.rocketmq.remoting.frame import FrameReader

__all__ = ["KEEP_ALIVE", "Connection", "KeepAlive", "Probe", "connect"]

_RESPONSE_FLAG = 1
_OPAQUE_MASK = 0x7FFFFFFF


class Probe(NamedTuple):
    """A cheap question; any answer at all shows that the server lives."""

    code: int
    fields: Mapping[str, str]


class KeepAlive(NamedTuple):
    """After how many silent seconds to ask, and how long a request waits in vain before the connection counts as dead.

    The servers close what was silent for 120 s; half-open connections should be found sooner.
    """

    after: float = 10.0
    patience: float = 3.0


KEEP_ALIVE = KeepAlive()


class _Waiting(NamedTuple):
    """`arrivals`: what had come when it was sent; `to_tell`: seconds of silence beyond its deadline that mean death."""

    response: asyncio.Future[Command]
    timer: asyncio.TimerHandle
    arrivals: int
    to_tell: float


class Connection(asyncio.Protocol):
    def __init__(self, address: str, probe: Probe, keep_alive: KeepAlive) -> None:
        self.address = address
        self._probe = probe
        self._keep_alive = keep_alive
        self._patience = keep_alive.patience
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._frames: list[bytes] = []
        self._opaque = 0
        # Counted, not timed: uvloop's clock stands still within a turn.
        self._arrivals = 0
        self._arrivals_seen = 0
        # The same twice: one to look at, one to wait for.
        self._is_full = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._watcher: asyncio.TimerHandle | None = None
        self._is_probing = False
        self._is_leaving = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self._transport is not None and not self._is_leaving and not self._transport.is_closing()

    async def call(self, code: int, fields: Mapping[str, str], body: bytes, deadline: float) -> Command:
        """PullRange, and wait for the answer for so many seconds; NotSent or NoResponse if there is none."""
        if self._is_full:
            deadline = await self._writable(deadline)
        transport = self._transport
        if deadline <= 0 or transport is None or self._is_leaving or transport.is_closing():
            raise NotSent(f"{self.address} does not take more now, or is gone")
        opaque = self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        frame = encode_request(code, opaque, fields, body)
        response = self._send(opaque, frame, deadline, self._patience - deadline)
        try:
            return await response
        finally:
            # Whoever stops waiting leaves nothing behind; what was answered is gone already.
            if opaque in self._waiting:
                self._take(opaque)

    async def _writable(self, deadline: float) -> float:
        """Wait until the server reads again; the seconds that are left, none if it does not."""
        end = self._loop.time() + deadline
        try:
            async with asyncio.timeout(deadline):
                await self._can_write.wait()
        except TimeoutError:
            # Not what the clock says: uvloop's timers may be early by a fraction of a millisecond.
            return 0.0
        return end - self._loop.time()

    def _send(self, opaque: int, frame: bytes, deadline: float, to_tell: float) -> asyncio.Future[Command]:
        response: asyncio.Future[Command] = self._loop.create_future()
        timer = self._loop.call_later(deadline, self._expire, opaque)
        # Not by its fields' names: every request makes one.
        self._waiting[opaque] = tuple.__new__(_Waiting, (response, timer, self._arrivals, to_tell))
        self._write(frame)
        return response

    def _take(self, opaque: int) -> _Waiting | None:
        waiting = self._waiting.pop(opaque, None)
        if waiting is not None:
            waiting[1].cancel()
            if self._is_leaving and not self._waiting:
                self.close("all is answered")
        return waiting

    def _write(self, frame: bytes) -> None:
        frames = self._frames
        frames.append(frame)
        if len(frames) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        frames, self._frames = self._frames, []
        if self._transport is not None:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _expire(self, opaque: int) -> None:
        waiting = self._take(opaque)
        if waiting is None or waiting[0].done():
            return
        response, _, arrivals, to_tell = waiting
        response.set_exception(NoResponse(f"{self.address} did not answer in time"))
        if self._arrivals != arrivals:
            return
        if to_tell <= 0:
            self.close("it has fallen silent")
        else:
            self._ask_probe(to_tell)

    def _watch(self) -> None:
        if self._arrivals == self._arrivals_seen:
            self._ask_probe(self._keep_alive.patience)
        self._arrivals_seen = self._arrivals
        self._watcher = self._loop.call_later(self._keep_alive.after, self._watch)

    def _ask_probe(self, deadline: float) -> None:
        """Nobody waits for it: an answer arrives, or the connection ends."""
        if self._is_probing or self._transport is None:
            return
        self._is_probing = True
        opaque = self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        frame = encode_request(self._probe.code, opaque, self._probe.fields, b"")
        self._send(opaque, frame, deadline, 0.0).add_done_callback(self._probed)

    def _probed(self, probe: asyncio.Future[Command]) -> None:
        self._is_probing = False
        probe.exception()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports are not asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._watcher = self._loop.call_later(self._keep_alive.after, self._watch)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._arrivals += 1
        try:
            commands = self._reader.feed(data)
        except RemoteProtocolError as error:
            self.close(str(error))
            return
        for command in commands:
            if not command.flag & _RESPONSE_FLAG:
                self._decline(command)
                continue
            waiting = self._take(command.opaque)
            # An answer that nobody waits for came too late.
            if waiting is not None and not waiting[0].done():
                waiting[0].set_result(command)
        if self._reader.is_broken:
            self.close("what it sent is no RocketMQ")

    def _decline(self, command: Command) -> None:
        """A server may ask its consumers something; we are none that it could ask. One that does not read gets none."""
        if not command.is_one_way and not self._is_full:
            self._write(encode(Command(ResponseCode.NOT_SUPPORTED, command.opaque, flag=_RESPONSE_FLAG)))

    def pause_writing(self) -> None:
        self._is_full = True
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._is_full = False
        self._can_write.set()

    def eof_received(self) -> None:
        # Left to itself, the transport would first try to get rid of what is not written yet, for as long as it takes.
        self.close("it hung up" if self._reader.is_between_frames else "it hung up in the middle of an answer")

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"the connection was lost: {error}")
        if not self.closed.done():
            self.closed.set_result(None)

    def retire(self) -> None:
        """Take no more requests, and end when those that wait have ended."""
        self._is_leaving = True
        self.resume_writing()
        if not self._waiting:
            self.close("all is answered")

    def close(self, why: str) -> None:
        """End it now; what waits fails with NoResponse."""
        transport = self._transport
        self._end(why)
        if transport is not None:
            transport.abort()

    def _end(self, why: str) -> None:
        self._transport = None
        self.resume_writing()
        if self._watcher is not None:
            self._watcher.cancel()
        waiting, self._waiting = self._waiting, {}
        for response, timer, _, _ in waiting.values():
            timer.cancel()
            if not response.done():
                # One each: whoever raises an exception writes its traceback into it.
                response.set_exception(NoResponse(f"{self.address} did not answer: {why}"))


async def connect(
    address: str, probe: Probe, tls: ssl.SSLContext | None, deadline: float, keep_alive: KeepAlive = KEEP_ALIVE
) -> Connection:
    """Connect within so many seconds; NotSent if that fails."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadline):
            _, connection = await loop.create_connection(
                lambda: Connection(address, probe, keep_alive),
                host.strip("[]"),
                int(port),
                ssl=tls,
                server_hostname=host.strip("[]") if tls is not None else None,
            )
    except (OSError, TimeoutError, ValueError, OverflowError) as error:
        raise NotSent(f"{address} cannot be reached: {error!r}") from error
    return connection
