"""One connection to a server, with concurrent requests whose responses arrive in any order.

- The frames of one iteration of the event loop are sent in one write.
- Every request has a deadline, which includes the time that it waits for the connection to become writable. One timer
  per connection, set to the earliest deadline, checks all of them.
- A probe is sent on a connection that has received nothing for some seconds. If nothing at all arrives while a request
  times out, the connection is half open, and is closed. If the deadline of the request was too short to decide that, a
  probe waits for the rest of the time.
- When the connection is closed, all pending requests fail at once with NoResponse.
- A server that is shutting down receives no new requests, and responds to the pending ones.
"""

import asyncio
import math
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple, cast

from mqgate.rocketmq.errors import NoResponse, NotSent, RemoteProtocolError
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.command import Command, encode, encode_head, frame
from mqgate.rocketmq.remoting.frame import FrameReader

__all__ = ["KEEP_ALIVE", "Connection", "KeepAlive", "Probe", "connect"]

_RESPONSE_FLAG = 1
_OPAQUE_MASK = 0x7FFFFFFF
# Timers of uvloop may fire this much early.
_TIMER_SLACK = 0.001


class Probe(NamedTuple):
    """A cheap request. Any response to it shows that the server is live."""

    code: int
    fields: Mapping[str, str]


class KeepAlive(NamedTuple):
    """Send a probe after `after` idle seconds; close the connection if nothing arrives within `patience` seconds.

    The servers close connections that are idle for 120 s. Half-open connections should be detected sooner.
    """

    after: float = 10.0
    patience: float = 3.0


KEEP_ALIVE = KeepAlive()


class _Pending(NamedTuple):
    """A request without a response. `arrivals`: the count of received chunks when it was sent.

    `silence_left`: how many seconds after its deadline the connection counts as half open if nothing arrives.
    """

    response: asyncio.Future[Command]
    expires_at: float
    arrivals: int
    silence_left: float


class Connection(asyncio.Protocol):
    def __init__(self, address: str, probe: Probe, keep_alive: KeepAlive) -> None:
        self.address = address
        self._probe = probe
        self._keep_alive = keep_alive
        self._patience = keep_alive.patience
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._frames: list[bytes] = []
        self._opaque = 0
        # A counter instead of a time: the clock of uvloop does not advance within one iteration.
        self._arrivals = 0
        self._arrivals_seen = 0
        # The same state twice: a flag to check and an event to wait for.
        self._is_full = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._watcher: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = math.inf
        self._is_probing = False
        self._is_retiring = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        """Return whether the connection accepts requests."""
        return self._transport is not None and not self._is_retiring and not self._transport.is_closing()

    def call(self, code: int, fields: Mapping[str, str], body: bytes, deadline: float) -> Coroutine[Any, Any, Command]:
        """Encode and send a request."""
        return self.send(encode_head(code, fields), body, deadline)

    async def send(self, head: bytes, body: bytes, deadline: float) -> Command:
        """Send an encoded request and return its response. Raise NotSent or NoResponse after `deadline` seconds."""
        if self._is_full:
            deadline = await self._writable(deadline)
        transport = self._transport
        if deadline <= 0 or transport is None or self._is_retiring or transport.is_closing():
            raise NotSent(f"the connection to {self.address} is closed or not writable")
        opaque = self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        response = self._write_request(opaque, frame(head, opaque, body), deadline, self._patience - deadline)
        try:
            return await response
        finally:
            # The caller was cancelled. A response has removed the entry already.
            if opaque in self._pending:
                self._pop(opaque)

    async def _writable(self, deadline: float) -> float:
        """Wait until the connection is writable. Return the seconds that are left, 0 on timeout."""
        end = self._loop.time() + deadline
        try:
            async with asyncio.timeout(deadline):
                await self._can_write.wait()
        except TimeoutError:
            # The remaining time may be positive: timers of uvloop may fire a fraction of a millisecond early.
            return 0.0
        return end - self._loop.time()

    def _write_request(
        self, opaque: int, encoded: bytes, deadline: float, silence_left: float
    ) -> asyncio.Future[Command]:
        response: asyncio.Future[Command] = self._loop.create_future()
        expires_at = self._loop.time() + deadline
        # tuple.__new__ is faster than the constructor, and every request creates one.
        self._pending[opaque] = tuple.__new__(_Pending, (response, expires_at, self._arrivals, silence_left))
        if expires_at < self._sweep_at:
            self._schedule_sweep(expires_at)
        self._write(encoded)
        return response

    def _pop(self, opaque: int) -> _Pending | None:
        pending = self._pending.pop(opaque, None)
        if self._is_retiring and pending is not None and not self._pending:
            self.close("all responses have arrived")
        return pending

    def _write(self, encoded: bytes) -> None:
        frames = self._frames
        frames.append(encoded)
        if len(frames) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        frames, self._frames = self._frames, []
        if self._transport is not None:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _schedule_sweep(self, at: float) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = at
        self._sweeper = self._loop.call_at(at, self._sweep)

    def _sweep(self) -> None:
        """Fail the requests whose deadlines have passed. Continue at the earliest deadline that is left."""
        self._sweep_at = math.inf
        now = self._loop.time() + _TIMER_SLACK
        for opaque, pending in list(self._pending.items()):
            if pending.expires_at <= now:
                self._expire(opaque)
        if self._pending:
            self._schedule_sweep(min(pending.expires_at for pending in self._pending.values()))

    def _expire(self, opaque: int) -> None:
        pending = self._pop(opaque)
        if pending is None or pending[0].done():
            return
        response, _, arrivals, silence_left = pending
        response.set_exception(NoResponse(f"{self.address} did not respond in time"))
        if self._arrivals != arrivals:
            return
        if silence_left <= 0:
            self.close("the connection is silent")
        else:
            self._send_probe(silence_left)

    def _watch(self) -> None:
        if self._arrivals == self._arrivals_seen:
            self._send_probe(self._keep_alive.patience)
        self._arrivals_seen = self._arrivals
        self._watcher = self._loop.call_later(self._keep_alive.after, self._watch)

    def _send_probe(self, deadline: float) -> None:
        """Send the probe in the background: a response arrives, or the connection is closed."""
        if self._is_probing or self._transport is None:
            return
        self._is_probing = True
        opaque = self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        encoded = frame(encode_head(self._probe.code, self._probe.fields), opaque, b"")
        self._write_request(opaque, encoded, deadline, 0.0).add_done_callback(self._probed)

    def _probed(self, probe: asyncio.Future[Command]) -> None:
        self._is_probing = False
        probe.exception()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because transports of uvloop do not inherit from asyncio's.
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
            pending = self._pop(command.opaque)
            # A response without a pending request is late, and is dropped.
            if pending is not None and not pending[0].done():
                pending[0].set_result(command)
        if self._reader.is_broken:
            self.close("the server violated the protocol")

    def _decline(self, command: Command) -> None:
        """Refuse a request of the server. Nothing is written if the server does not read."""
        if not command.is_one_way and not self._is_full:
            self._write(encode(Command(ResponseCode.NOT_SUPPORTED, command.opaque, flag=_RESPONSE_FLAG)))

    def pause_writing(self) -> None:
        self._is_full = True
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._is_full = False
        self._can_write.set()

    def eof_received(self) -> None:
        # By default the transport would first write all buffered data, for as long as that takes.
        where = "" if self._reader.is_between_frames else " in the middle of a response"
        self.close(f"the server closed the connection{where}")

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"the connection was lost: {error}")
        if not self.closed.done():
            self.closed.set_result(None)

    def retire(self) -> None:
        """Accept no more requests, and close the connection when no request is pending."""
        self._is_retiring = True
        self.resume_writing()
        if not self._pending:
            self.close("all responses have arrived")

    def close(self, reason: str) -> None:
        """Close the connection now. Pending requests fail with NoResponse."""
        transport = self._transport
        self._end(reason)
        if transport is not None:
            transport.abort()

    def _end(self, reason: str) -> None:
        self._transport = None
        self.resume_writing()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        ended, self._pending = self._pending, {}
        for response, _, _, _ in ended.values():
            if not response.done():
                # Each gets its own exception, because raising adds a traceback to it.
                response.set_exception(NoResponse(f"{self.address} did not respond: {reason}"))


async def connect(
    address: str, probe: Probe, tls: ssl.SSLContext | None, deadline: float, keep_alive: KeepAlive = KEEP_ALIVE
) -> Connection:
    """Connect within `deadline` seconds. Raise NotSent if that fails."""
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
