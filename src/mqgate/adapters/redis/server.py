"""The server that all gateways share: connected on demand, again after a loss, and known by its run.

A command that was lost with its connection is sent again on the next one until its time is over: every script may be
repeated, and one that must not do its work twice is told that it is a repeat.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import redis.asyncio.connection as client
import structlog
from redis.exceptions import RedisError

from mqgate.adapters.redis.faults import is_elsewhere, translated
from mqgate.adapters.redis.scripts import SCRIPTS, Script
from mqgate.adapters.redis.wire import ReplyError, Wire
from mqgate.core.errors import Busy, MqgateError, StorageRefused, StorageUnavailable
from mqgate.core.message import instant

__all__ = ["Request", "Server", "judge"]

_log = structlog.get_logger()
_OLDEST = (6, 2)
_PAUSE = 0.1
# What a script is told, for a run of the server; and whether it may have been done before.
Request = Callable[[str, bool], tuple[Any, ...]]


class Server:
    """One connection for all that this process asks."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._options = _parsed(url)
        self._timeout = timeout
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[Wire] | None = None
        # Of the server's clock before our own steady one: a clock of ours that is set meanwhile does no harm.
        self._ahead = time.time() - time.monotonic()
        self._is_closed = False
        self.round_trips = 0

    def now(self) -> datetime:
        """The server's clock, as of the connection: good enough to set a timer by."""
        return instant(int((time.monotonic() + self._ahead) * 1000))

    async def evaluate(
        self, script: Script, key: str, request: Request, late: Callable[[Any], None] | None = None
    ) -> Any:
        """Run a script; what it answers. `late` hears what comes after the time is over, or None if it is lost."""
        deadline = time.monotonic() + self._timeout
        is_repeat = False
        while True:
            try:
                wire = await self._connected(deadline)
            except BaseException:
                if is_repeat and late is not None:
                    late(None)
                raise
            self.round_trips += 1
            command = ("EVALSHA", script.sha, 1, key, *request(wire.run, is_repeat))
            try:
                reply = await wire.send(command, late, deadline)
                if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
                    # Load and run in one write: whoever flushes again comes before both or after both.
                    loading = wire.send(("SCRIPT", "LOAD", script.source), None, deadline)
                    reply, _ = await asyncio.gather(wire.send(command, late, deadline), loading)
            except ConnectionError:
                is_repeat = True
                continue
            except TimeoutError:
                raise StorageUnavailable(f"Redis did not answer in {self._timeout:g} s", retry_after=1) from None
            if not isinstance(reply, ReplyError):
                return reply
            error = translated(str(reply))
            if is_elsewhere(str(reply)):
                wire.close()
            elif not isinstance(error, Busy):
                _log.error("Redis refused a script", script=script.name, error=str(reply))
            raise error

    async def command(self, *parts: Any) -> Any:
        """One command."""
        wire = await self._connected(time.monotonic() + self._timeout)
        self.round_trips += 1
        try:
            reply = await wire.send(parts)
        except (ConnectionError, TimeoutError) as error:
            raise StorageUnavailable(f"Redis does not answer: {error}", retry_after=1) from None
        if isinstance(reply, ReplyError):
            raise translated(str(reply))
        return reply

    async def session(self) -> client.AbstractConnection:
        """A connection of redis-py's own, on which somebody is logged in."""
        options = dict(self._options)
        connection: client.AbstractConnection = options.pop("connection_class", client.Connection)(**options)
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()  # type: ignore[no-untyped-call] # redis-py's
        except (RedisError, OSError) as error:
            raise _from_the_door(error) from error
        return connection

    async def probe(self) -> Mapping[str, str]:
        """Whether it answers; raises if not."""
        await self.command("PING")
        return {}

    async def info(self) -> Mapping[str, str]:
        """What the server says of itself."""
        return _read_info(await self.command("INFO"))

    async def connect(self) -> None:
        """Now, not with the first request."""
        await self._connected(time.monotonic() + self._timeout)

    async def _connected(self, deadline: float) -> Wire:
        """The connection; made by one for all who wait. Refusals are raised at once, absence when the time is over."""
        why: BaseException = StorageUnavailable("Redis cannot be reached: no connection in time", retry_after=1)
        while self._wire is None:
            if self._is_closed:
                raise StorageUnavailable("the gateway is stopping", retry_after=1)
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
                self._connecting.add_done_callback(self._connected_or_not)
            task = self._connecting
            await asyncio.wait((task,), timeout=max(deadline - time.monotonic(), 0))
            error = task.exception() if task.done() and not task.cancelled() else None
            why = error or why
            if time.monotonic() >= deadline or not isinstance(why, StorageUnavailable):
                raise why
            if error is not None:
                await asyncio.sleep(min(_PAUSE, max(deadline - time.monotonic(), 0)))
        return self._wire

    def _connected_or_not(self, task: "asyncio.Task[Wire]") -> None:
        self._connecting = None
        # It may have broken between the last answer and now, and was nobody's then.
        if not task.cancelled() and task.exception() is None and task.result().is_open:
            self._wire = task.result()

    async def _connect(self) -> Wire:
        """By redis-py, which knows URLs, TLS and users; from then on the socket is ours."""
        connection = await self.session()
        wire = Wire(self._timeout, self._lost)
        # No public way to the socket; redis-py's own reading costs several times what a script does.
        writer = connection._writer  # noqa: SLF001
        assert writer is not None, "it is connected"  # noqa: S101 - for the type checker
        wire.take_over(writer)
        connection._reader = connection._writer = None  # noqa: SLF001 - nor may it close what is ours
        try:
            wire.run = await self._examine(wire)
        except BaseException as error:
            wire.close()
            if isinstance(error, ConnectionError | TimeoutError):
                raise StorageUnavailable(f"Redis cannot be reached: {error}", retry_after=1) from error
            raise
        return wire

    async def _examine(self, wire: Wire) -> str:
        """What it is: its run. One that could lose keys, or is too old, is refused."""
        before = time.monotonic()
        found, clock, *loaded = await asyncio.gather(
            wire.send(("INFO",)),
            wire.send(("TIME",)),
            *(wire.send(("SCRIPT", "LOAD", each.source)) for each in SCRIPTS),
        )
        for reply in (found, clock, *loaded):
            if isinstance(reply, ReplyError):
                raise translated(str(reply))
        self._ahead = int(clock[0]) + int(clock[1]) / 1e6 - (before + time.monotonic()) / 2
        info = _read_info(found)
        judge(info)
        return str(info["run_id"])

    def _lost(self, wire: Wire) -> None:
        if self._wire is wire:
            self._wire = None
            if not self._is_closed:
                _log.warning("connection to Redis broke")

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        if self._wire is not None:
            self._wire.close()


def _read_info(told: bytes) -> Mapping[str, str]:
    return dict(line.split(":", 1) for line in told.decode().splitlines() if ":" in line)


def judge(info: Mapping[str, str]) -> None:
    """Refuse a server, by what INFO says of it, that could lose leases or does not know what scripts need."""
    version = tuple(int(part) for part in re.findall(r"\d+", info["redis_version"])[:2])
    if version < _OLDEST:
        raise StorageRefused(f"Redis {info['redis_version']} is too old: 6.2 or newer is needed")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StorageRefused(f"Redis may evict leases ({policy}): set maxmemory-policy noeviction")
    if info.get("role") != "master":
        raise StorageUnavailable("Redis is a replica: [redis] url must lead to the primary", retry_after=1)


def _parsed(url: str) -> dict[str, Any]:
    # Without a timeout of its own: redis-py would write under wait_for, which takes a cancellation for done.
    ours = {"protocol": 2, "socket_timeout": None}
    try:
        return {"socket_keepalive": True, "client_name": "mqgate", **client.parse_url(url), **ours}
    except ValueError:
        # Its text may show a part of the password, which was taken for the port.
        raise StorageRefused(
            "[redis] url is not one: redis://user:password@host:6379/0, with / ? # [ of the password percent-encoded"
        ) from None


def _from_the_door(error: Exception) -> MqgateError:
    text = str(error)
    # redis-py takes the first word of an answer away.
    if re.search(r"WRONGPASS|NOAUTH|NOPERM|no permission|invalid (user|pass)|certificate|AUTH", text, re.IGNORECASE):
        return StorageRefused(f"Redis does not let us in, see [redis] url: {text}")
    return StorageUnavailable(f"Redis cannot be reached: {text}", retry_after=1)
