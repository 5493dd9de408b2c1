"""One lease store in SQLite and one in Redis, on one clock: every step is played on both, and their answers compared.

Incarnations are random, so each store's are numbered as they appear: leases go in and out under these numbers.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.redis.server import Server
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.core.errors import MqgateError
from mqgate.core.lease import AcquireResult, ClientInfo, ExhaustedMessage, Lease, Position
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock


class Side:
    """One of the two."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._incarnations: list[str] = []

    async def play(self, verb: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        given = [_walked(each, self._own) for each in arguments]
        try:
            answer = await getattr(self._store, verb)(*given, **options)
        except MqgateError as error:
            return error.code
        return _walked(answer, self._numbered)

    def _own(self, number: str) -> str:
        return self._incarnations[int(number)]

    def _numbered(self, incarnation: str) -> str:
        if incarnation not in self._incarnations:
            self._incarnations.append(incarnation)
        return str(self._incarnations.index(incarnation))


class Twins:
    def __init__(self, directory: Path, redis_url: str, most_clients: int) -> None:
        self.clock = ManualClock()
        self._loop = asyncio.new_event_loop()
        self._engine = Engine(directory, synchronous="normal", wall_ms=self.clock)
        self._server = Server(redis_url, timeout=60.0)
        prefix = f"test-{uuid4().hex[:12]}"
        redis = RedisLeaseStore(self._server, prefix=prefix, most_clients=most_clients, clock=self.clock)
        self._sides = Side(SqliteLeaseStore(self._engine, most_clients=most_clients)), Side(redis)

    def play(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """One method of LeaseStore on both, with one answer; a refusal is told by its code."""
        in_sqlite, in_redis = (
            self._loop.run_until_complete(side.play(verb, arguments, options)) for side in self._sides
        )
        if isinstance(in_redis, AcquireResult) and in_redis.grants and in_redis.next_at and in_sqlite.next_at:
            # Told to those who wait; for them it may be too early, but not too late.
            assert self.clock.now <= in_redis.next_at <= in_sqlite.next_at
            in_redis = in_redis._replace(next_at=in_sqlite.next_at)
        assert in_redis == in_sqlite, f"{verb}:\nSQLite {in_sqlite}\nRedis  {in_redis}"
        return in_sqlite

    def close(self) -> None:
        self._loop.run_until_complete(self._server.close())
        self._loop.run_until_complete(self._engine.close())
        self._loop.close()


def _walked(value: Any, renamed: Callable[[str], str]) -> Any:
    """The same with other incarnations, what has no order put into one, and errors by their codes."""
    walked = value
    if isinstance(value, Lease):
        walked = value._replace(incarnation=renamed(value.incarnation))
    elif isinstance(value, MqgateError):
        walked = value.code
    elif isinstance(value, ClientInfo):
        # When it was seen is good to a second, in Redis by the real clock.
        walked = value.name, value.address, value.holds
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        walked = type(value)(*(_walked(each, renamed) for each in value))
    elif isinstance(value, list | tuple):
        walked = [_walked(each, renamed) for each in value]
        if value and isinstance(value[0], Position | ClientInfo | ExhaustedMessage):
            walked = sorted(walked)
    if isinstance(walked, AcquireResult):
        walked = walked._replace(unknown_queues=sorted(walked.unknown_queues))
    return walked
