"""Servers by address, with one connection each. A lost connection is made again, with growing pauses after failures."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mqgate.rocketmq.errors import NoResponse, NotSent, Refused
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.command import Command, encode_head
from mqgate.rocketmq.remoting.signature import Credentials, sign
from mqgate.rocketmq.transport import KEEP_ALIVE, Connection, KeepAlive, Probe, connect

__all__ = ["Peer", "Peers", "expect"]

_CONNECT_DEADLINE = 3.0
_FIRST_PAUSE = 0.05
_MAX_PAUSE = 1.0
_CLOSE_DEADLINE = 1.0


class Peer:
    """One server. After a failed attempt to connect, calls fail at once until the next attempt is due."""

    def __init__(
        self,
        address: str,
        probe: Probe,
        tls: ssl.SSLContext | None,
        *,
        keep_alive: KeepAlive = KEEP_ALIVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._probe = probe
        self._tls = tls
        self._keep_alive = keep_alive
        self._clock = clock
        self._connection: Connection | None = None
        # All connections that are not closed: the current one, and retired ones with pending requests.
        self._open: set[Connection] = set()
        self._connecting: asyncio.Task[Connection | None] | None = None
        self._is_closed = False
        self._is_silent = False
        # The number of connections so far.
        self.sessions = 0
        self._pause = 0.0
        self._retry_at = 0.0
        self._failure = ""

    @property
    def is_down(self) -> bool:
        """Return whether the last attempt to connect failed, or the last connection ended without a response."""
        return self._pause > 0 or self._is_silent

    def call(
        self, code: int, fields: Mapping[str, str], body: bytes, deadline: float, allowed: tuple[int, ...] | None = None
    ) -> Coroutine[Any, Any, Command]:
        """Encode and send one request."""
        return self.send(encode_head(code, fields), body, deadline, allowed)

    async def send(self, head: bytes, body: bytes, deadline: float, allowed: tuple[int, ...] | None = None) -> Command:
        """Send one encoded request within `deadline` seconds, and connect first if need be.

        Raise NotSent also if the server is shutting down. If `allowed` is given, raise Refused unless the response code
        is SUCCESS or one of these.
        """
        connection = self._connection
        if connection is None or not connection.is_open:
            started = time.monotonic()
            connection = await self._connected(deadline)
            deadline -= time.monotonic() - started
        try:
            response = await connection.send(head, body, deadline)
        except NoResponse:
            # A hanging server accepts new connections. Only a response shows that it is live.
            self._is_silent |= connection is self._connection and not connection.is_open
            raise
        self._is_silent = False
        # Success is by far the most common.
        if response[0] == 0:
            return response
        if response.code == ResponseCode.GO_AWAY:
            # Retire the connection of this call: the current one may be newer.
            connection.retire()
            raise NotSent(f"{self.address} is going away")
        return response if allowed is None else expect(response, self.address, *allowed)

    async def _connected(self, deadline: float) -> Connection:
        if self._is_closed:
            raise NotSent(f"the request to {self.address} was not sent: the client was closed")
        if self._connecting is None:
            if self._clock() < self._retry_at:
                raise NotSent(self._failure)
            self._connecting = asyncio.create_task(self._connect())
        connecting = self._connecting
        # Not awaited: a cancelled caller must not cancel the task, and a cancelled task must not look like cancellation
        # of the caller.
        await asyncio.wait((connecting,), timeout=deadline)
        if not connecting.done():
            raise NotSent(f"{self.address} could not be reached in time")
        connection = None if connecting.cancelled() else connecting.result()
        if connection is None:
            raise NotSent(self._failure)
        return connection

    async def _connect(self) -> Connection | None:
        try:
            connection = await connect(self.address, self._probe, self._tls, _CONNECT_DEADLINE, self._keep_alive)
        except NotSent as error:
            self._failure = str(error)
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _MAX_PAUSE)
            self._retry_at = self._clock() + self._pause
            return None
        finally:
            self._connecting = None
        self._pause = 0.0
        self.sessions += 1
        self._connection = connection
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def close(self) -> list[asyncio.Future[None] | asyncio.Task[Connection | None]]:
        """Close all connections for good. Return the futures to wait for."""
        self._is_closed = True
        self._failure = f"{self.address} was not reached: the client was closed"
        ends: list[asyncio.Future[None] | asyncio.Task[Connection | None]] = []
        if self._connecting is not None:
            self._connecting.cancel()
            ends.append(self._connecting)
            # A task that has not started yet does not run its `finally`.
            self._connecting = None
        for connection in self._open:
            connection.close("the client was closed")
            ends.append(connection.closed)
        return ends


class Peers:
    """All servers of the client. Requests are signed here."""

    def __init__(
        self,
        credentials: Credentials | None,
        tls: ssl.SSLContext | None,
        deadline: float,
        *,
        keep_alive: KeepAlive = KEEP_ALIVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._credentials = credentials
        self._tls = tls
        self.deadline = deadline
        self._keep_alive = keep_alive
        self._clock = clock
        # By address.
        self.known: dict[str, Peer] = {}
        self._is_closed = False

    @property
    def is_signing(self) -> bool:
        return self._credentials is not None

    def at(self, address: str, probe: Probe) -> Peer:
        peer = self.known.get(address)
        if peer is None:
            if self._credentials is not None:
                probe = Probe(probe.code, sign(probe.fields, b"", self._credentials))
            peer = Peer(address, probe, self._tls, keep_alive=self._keep_alive, clock=self._clock)
            self.known[address] = peer
            if self._is_closed:
                peer.close()
        return peer

    def call(
        self,
        peer: Peer,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        deadline: float | None = None,
        allowed: tuple[int, ...] | None = None,
    ) -> Coroutine[Any, Any, Command]:
        """Sign and send one request.

        This returns the coroutine of the peer: a further coroutine would make every request slower.
        """
        if self._credentials is not None:
            fields = sign(fields, body, self._credentials)
        return peer.call(code, fields, body, self.deadline if deadline is None else deadline, allowed)

    async def close(self) -> None:
        """Close all connections for good. Pending requests fail with NoResponse, later ones with NotSent."""
        self._is_closed = True
        ends = [end for peer in self.known.values() for end in peer.close()]
        if ends:
            await asyncio.wait(ends, timeout=_CLOSE_DEADLINE)


def expect(response: Command, address: str, *allowed: int) -> Command:
    """Return the response if its code is SUCCESS or one of `allowed`; raise Refused otherwise."""
    if response.code != ResponseCode.SUCCESS and response.code not in allowed:
        raise Refused(response.code, response.remark or "", address)
    return response
