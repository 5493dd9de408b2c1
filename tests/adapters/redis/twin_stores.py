"""A SQLite and a Redis lease store on one clock. Every step runs on both, and the results must be equal.

Incarnations are random, so those of each store are replaced by numbers in the order in which they appear.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.core.errors import MqgateError
from mqgate.core.lease import AcquireResult, ClientInfo, ExhaustedMessage, Lease, Position
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock


class Side:
    """One of the two stores."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._incarnations: list[str] = []

    async def play(self, verb: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        given = [_walked(argument, self._own) for argument in arguments]
        try:
            result = await getattr(self._store, verb)(*given, **options)
        except MqgateError as error:
            return error.code
        return _walked(result, self._numbered)

    def _own(self, number: str) -> str:
        return self._incarnations[int(number)]

    def _numbered(self, incarnation: str) -> str:
        if incarnation not in self._incarnations:
            self._incarnations.append(incarnation)
        return str(self._incarnations.index(incarnation))


class Twins:
    def __init__(self, directory: Path, redis_url: str, max_clients: int) -> None:
        self.clock = ManualClock()
        self._loop = asyncio.new_event_loop()
        self._engine = Engine(directory, synchronous="normal", wall_ms=self.clock)
        self._server = RedisClient(redis_url, timeout=60.0)
        prefix = f"test-{uuid4().hex[:12]}"
        redis = RedisLeaseStore(self._server, prefix=prefix, max_clients=max_clients, clock=self.clock)
        self._sides = Side(SqliteLeaseStore(self._engine, max_clients=max_clients)), Side(redis)

    def play(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of both stores and return the result, or the code of an error."""
        in_sqlite, in_redis = (
            self._loop.run_until_complete(side.play(verb, arguments, options)) for side in self._sides
        )
        if isinstance(in_redis, AcquireResult) and in_redis.grants and in_redis.next_at and in_sqlite.next_at:
            # A hint for parked receives: it may be too early, but not too late.
            assert self.clock.now <= in_redis.next_at <= in_sqlite.next_at
            in_redis = in_redis._replace(next_at=in_sqlite.next_at)
        assert in_redis == in_sqlite, f"{verb}:\nSQLite {in_sqlite}\nRedis  {in_redis}"
        return in_sqlite

    def close(self) -> None:
        self._loop.run_until_complete(self._server.close())
        self._loop.run_until_complete(self._engine.close())
        self._loop.close()


def _walked(value: Any, renamed: Callable[[str], str]) -> Any:
    """Return the value with renamed incarnations, sorted unordered lists, and codes instead of errors."""
    walked = value
    if isinstance(value, Lease):
        walked = value._replace(incarnation=renamed(value.incarnation))
    elif isinstance(value, MqgateError):
        walked = value.code
    elif isinstance(value, ClientInfo):
        # The time of the last poll is exact to a second only, and Redis uses the real clock for it.
        walked = value.name, value.address, value.holds
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        walked = type(value)(*(_walked(member, renamed) for member in value))
    elif isinstance(value, list | tuple):
        walked = [_walked(member, renamed) for member in value]
        if value and isinstance(value[0], Position | ClientInfo | ExhaustedMessage):
            walked = sorted(walked)
    if isinstance(walked, AcquireResult):
        walked = walked._replace(unknown_queues=sorted(walked.unknown_queues))
    return walked
