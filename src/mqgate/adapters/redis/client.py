"""Client of the Redis server that all gateways share. It connects on demand and reconnects after a loss.

A command whose connection is lost is sent again on the next one until its deadline. Every script can be repeated: an
argument tells it that an earlier execution is possible, so that it does not do its work twice.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import redis.asyncio.connection as driver
import structlog
from redis.exceptions import RedisError

from mqgate.adapters.redis.connection import RedisConnection, ReplyError
from mqgate.adapters.redis.faults import is_wrong_server, translated
from mqgate.adapters.redis.scripts import SCRIPTS, Script
from mqgate.core.errors import Busy, MqgateError, StorageRefused, StorageUnavailable
from mqgate.core.message import instant

__all__ = ["RedisClient", "ScriptArguments", "check_server"]

_log = structlog.get_logger()
_MIN_VERSION = (6, 2)
_RETRY_PAUSE = 0.1
# Returns ARGV of a script from the run id of the server and whether the command may have been executed before.
ScriptArguments = Callable[[str, bool], tuple[Any, ...]]


class RedisClient:
    """Client with one pipelined connection for all commands of this process."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._options = _parse_url(url)
        self._timeout = timeout
        self._connection: RedisConnection | None = None
        self._connecting: asyncio.Task[RedisConnection] | None = None
        # Server clock minus time.monotonic(), so that changes of the local wall clock have no effect.
        self._clock_offset = time.time() - time.monotonic()
        self._is_closed = False
        self.round_trips = 0

    def now(self) -> datetime:
        """Return the server time, estimated from a sample taken when the connection was made."""
        return instant(int((time.monotonic() + self._clock_offset) * 1000))

    async def evaluate(
        self,
        script: Script,
        keys: Sequence[str],
        arguments: ScriptArguments,
        late: Callable[[Any], None] | None = None,
    ) -> Any:
        """Run a script and return its reply.

        After a timeout, `late` receives the reply when it arrives, or None if it is lost.
        """
        deadline = time.monotonic() + self._timeout
        is_repeat = False
        while True:
            try:
                connection = self._connection or await self._connected(deadline)
            except BaseException:
                if is_repeat and late is not None:
                    late(None)
                raise
            self.round_trips += 1
            command = ("EVALSHA", script.sha, len(keys), *keys, *arguments(connection.run, is_repeat))
            try:
                reply = await connection.send(command, late, deadline)
                if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
                    # Load and run in one write, so that no SCRIPT FLUSH can come between the two.
                    loading = connection.send(("SCRIPT", "LOAD", script.source), None, deadline)
                    reply, _ = await asyncio.gather(connection.send(command, late, deadline), loading)
            except ConnectionError:
                is_repeat = True
                continue
            except TimeoutError:
                raise StorageUnavailable(f"Redis did not respond within {self._timeout:g} s", retry_after=1) from None
            if not isinstance(reply, ReplyError):
                return reply
            error = translated(str(reply))
            if is_wrong_server(str(reply)):
                connection.close()
            elif not isinstance(error, Busy):
                _log.error("Redis rejected a script", script=script.name, error=str(reply))
            raise error

    async def command(self, *parts: Any) -> Any:
        """Run one command and return its reply."""
        connection = await self._connected(time.monotonic() + self._timeout)
        self.round_trips += 1
        try:
            reply = await connection.send(parts)
        except (ConnectionError, TimeoutError) as error:
            raise StorageUnavailable(f"Redis did not respond: {error}", retry_after=1) from None
        if isinstance(reply, ReplyError):
            raise translated(str(reply))
        return reply

    async def session(self) -> driver.AbstractConnection:
        """Return a new authenticated connection of redis-py."""
        options = dict(self._options)
        session: driver.AbstractConnection = options.pop("connection_class", driver.Connection)(**options)
        try:
            async with asyncio.timeout(self._timeout):
                await session.connect()  # type: ignore[no-untyped-call] # redis-py's
        except (RedisError, OSError) as error:
            raise _connect_error(error) from error
        return session

    async def probe(self) -> Mapping[str, str]:
        """Raise if the server does not respond."""
        await self.command("PING")
        return {}

    async def info(self) -> Mapping[str, str]:
        """Return the fields of INFO."""
        return _parse_info(await self.command("INFO"))

    async def connect(self) -> None:
        """Connect now instead of with the first command."""
        await self._connected(time.monotonic() + self._timeout)

    async def _connected(self, deadline: float) -> RedisConnection:
        """Return the connection; concurrent callers share one attempt to make it.

        A refusal is raised at once. An unavailable server is tried again until the deadline.
        """
        reason: BaseException = StorageUnavailable("Redis cannot be reached: no connection in time", retry_after=1)
        while self._connection is None:
            if self._is_closed:
                raise StorageUnavailable("the gateway is stopping", retry_after=1)
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
                self._connecting.add_done_callback(self._finish_connecting)
            task = self._connecting
            await asyncio.wait((task,), timeout=max(deadline - time.monotonic(), 0))
            error = task.exception() if task.done() and not task.cancelled() else None
            reason = error or reason
            if time.monotonic() >= deadline or not isinstance(reason, StorageUnavailable):
                raise reason
            if error is not None:
                await asyncio.sleep(min(_RETRY_PAUSE, max(deadline - time.monotonic(), 0)))
        return self._connection

    def _finish_connecting(self, task: "asyncio.Task[RedisConnection]") -> None:
        self._connecting = None
        # The connection may have been lost since its last reply, before self._connection was set.
        if not task.cancelled() and task.exception() is None and task.result().is_open:
            self._connection = task.result()

    async def _connect(self) -> RedisConnection:
        """Connect with redis-py, which supports URLs, TLS and users, then take over its socket."""
        session = await self.session()
        connection = RedisConnection(self._timeout, self._lost)
        # redis-py has no public access to the socket. Its own reader costs several times as much CPU as a script.
        writer = session._writer  # noqa: SLF001
        assert writer is not None, "it is connected"  # noqa: S101 - for the type checker
        connection.take_over(writer)
        session._reader = session._writer = None  # noqa: SLF001 - redis-py must not close the socket
        try:
            connection.run = await self._examine(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, ConnectionError | TimeoutError):
                raise StorageUnavailable(f"Redis cannot be reached: {error}", retry_after=1) from error
            raise
        return connection

    async def _examine(self, connection: RedisConnection) -> str:
        """Load the scripts, sample the clock and return the run id. Raise if the server is not suitable."""
        before = time.monotonic()
        info_reply, clock, *loaded = await asyncio.gather(
            connection.send(("INFO",)),
            connection.send(("TIME",)),
            *(connection.send(("SCRIPT", "LOAD", script.source)) for script in SCRIPTS),
        )
        for reply in (info_reply, clock, *loaded):
            if isinstance(reply, ReplyError):
                raise translated(str(reply))
        self._clock_offset = int(clock[0]) + int(clock[1]) / 1e6 - (before + time.monotonic()) / 2
        info = _parse_info(info_reply)
        check_server(info)
        return str(info["run_id"])

    def _lost(self, connection: RedisConnection) -> None:
        if self._connection is connection:
            self._connection = None
            if not self._is_closed:
                _log.warning("connection to Redis lost")

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        if self._connection is not None:
            self._connection.close()


def _parse_info(reply: bytes) -> Mapping[str, str]:
    return dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)


def check_server(info: Mapping[str, str]) -> None:
    """Raise if INFO shows a server that is too old, may evict leases, or is a replica."""
    version = tuple(int(part) for part in re.findall(r"\d+", info["redis_version"])[:2])
    if version < _MIN_VERSION:
        raise StorageRefused(f"Redis {info['redis_version']} is too old: 6.2 or newer is required")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StorageRefused(f"Redis may evict leases ({policy}): set maxmemory-policy noeviction")
    if info.get("role") != "master":
        raise StorageUnavailable("Redis is a replica: [redis] url must lead to the primary", retry_after=1)


def _parse_url(url: str) -> dict[str, Any]:
    # No socket_timeout: with one, redis-py writes under wait_for, which can swallow a cancellation.
    fixed = {"protocol": 2, "socket_timeout": None}
    try:
        return {"socket_keepalive": True, "client_name": "mqgate", **driver.parse_url(url), **fixed}
    except ValueError:
        # The text of the error may contain a part of the password, which was parsed as the port.
        raise StorageRefused(
            "[redis] url is invalid: use redis://user:password@host:6379/0, and percent-encode / ? # [ in the password"
        ) from None


def _connect_error(error: Exception) -> MqgateError:
    text = str(error)
    # redis-py removes the code, the first word of a reply.
    if re.search(r"WRONGPASS|NOAUTH|NOPERM|no permission|invalid (user|pass)|certificate|AUTH", text, re.IGNORECASE):
        return StorageRefused(f"access denied by Redis, check the user of [redis] url: {text}")
    return StorageUnavailable(f"Redis cannot be reached: {text}", retry_after=1)
