"""The servers we talk to, by address: one connection each, made again with a growing pause when it was lost."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mqgate.rocketmq.errors import NoResponse, NotSent, Refused
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.command import Command
from mqgate.rocketmq.remoting.signature import Credentials, sign
from mqgate.rocketmq.transport import KEEP_ALIVE, Connection, KeepAlive, Probe, connect

__all__ = ["Peer", "Peers", "expect"]

_CONNECT_DEADLINE = 3.0
_FIRST_PAUSE = 0.05
_MAX_PAUSE = 1.0
_CLOSE_DEADLINE = 1.0


class Peer:
    """One server. While it cannot be reached, calls fail at once until the next try is due."""

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
        # All that are not closed yet: one in use, others that only finish what they have.
        self._open: set[Connection] = set()
        self._connecting: asyncio.Task[Connection | None] | None = None
        self._is_closed = False
        self._is_silent = False
        # How often it was connected to.
        self.sessions = 0
        self._pause = 0.0
        self._retry_at = 0.0
        self._why = ""

    @property
    def is_down(self) -> bool:
        """Whether the last try to reach it failed, or its connection ended without an answer and none came since."""
        return self._pause > 0 or self._is_silent

    async def call(
        self, code: int, fields: Mapping[str, str], body: bytes, deadline: float, allowed: tuple[int, ...] | None = None
    ) -> Command:
        """One request, connected first if need be, within so many seconds; NotSent also if the server is leaving.

        With codes allowed: Refused unless it succeeded or answered one of them.
        """
        connection = self._connection
        if connection is None or not connection.is_open:
            started = time.monotonic()
            connection = await self._connected(deadline)
            deadline -= time.monotonic() - started
        try:
            response = await connection.call(code, fields, body, deadline)
        except NoResponse:
            # A hanging server takes new connections; only an answer shows that it lives.
            self._is_silent |= connection is self._connection and not connection.is_open
            raise
        self._is_silent = False
        # Success is by far the commonest.
        if response[0] == 0:
            return response
        if response.code == ResponseCode.GO_AWAY:
            # This very connection: by now others may have made a new one.
            connection.retire()
            raise NotSent(f"{self.address} is going away")
        return response if allowed is None else expect(response, self.address, *allowed)

    async def _connected(self, deadline: float) -> Connection:
        if self._is_closed:
            raise NotSent(f"{self.address} is not asked any more: the client was closed")
        if self._connecting is None:
            if self._clock() < self._retry_at:
                raise NotSent(self._why)
            self._connecting = asyncio.create_task(self._connect())
        connecting = self._connecting
        # It is waited for, not awaited: who gives up must not end it for the others, nor its end look like theirs.
        await asyncio.wait((connecting,), timeout=deadline)
        if not connecting.done():
            raise NotSent(f"{self.address} could not be reached in time")
        connection = None if connecting.cancelled() else connecting.result()
        if connection is None:
            raise NotSent(self._why)
        return connection

    async def _connect(self) -> Connection | None:
        try:
            connection = await connect(self.address, self._probe, self._tls, _CONNECT_DEADLINE, self._keep_alive)
        except NotSent as error:
            self._why = str(error)
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
        """End it for good; what has to be waited for until it has ended."""
        self._is_closed = True
        self._why = f"{self.address} was not reached: the client was closed"
        ends: list[asyncio.Future[None] | asyncio.Task[Connection | None]] = []
        if self._connecting is not None:
            self._connecting.cancel()
            ends.append(self._connecting)
            # One that has not even begun does not get to clean up.
            self._connecting = None
        for connection in self._open:
            connection.close("the client was closed")
            ends.append(connection.closed)
        return ends


class Peers:
    """All of them; requests are signed here."""

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
        self._deadline = deadline
        self._keep_alive = keep_alive
        self._clock = clock
        # By address, as they were asked for.
        self.known: dict[str, Peer] = {}
        self._is_closed = False

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
        """One request; what the server says about leaving is as if nothing had been sent.

        Here and above no coroutine is wrapped around another: every layer would cost each request again.
        """
        if self._credentials is not None:
            fields = sign(fields, body, self._credentials)
        return peer.call(code, fields, body, self._deadline if deadline is None else deadline, allowed)

    async def close(self) -> None:
        """End all connections for good; who waits for an answer gets NoResponse, who comes later NotSent."""
        self._is_closed = True
        ends = [end for peer in self.known.values() for end in peer.close()]
        if ends:
            await asyncio.wait(ends, timeout=_CLOSE_DEADLINE)


def expect(response: Command, address: str, *allowed: int) -> Command:
    """The answer, if it is a success or one of the codes allowed; else Refused."""
    if response.code != ResponseCode.SUCCESS and response.code not in allowed:
        raise Refused(response.code, response.remark or "", address)
    return response
