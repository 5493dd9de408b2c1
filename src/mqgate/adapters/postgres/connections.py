"""Connections to PostgreSQL: the pool, single connections, and a check for dead ones without a round trip.

Every wait has a deadline: `connect` for a new connection, `checkout` for a connection of the pool, `statement` for a
statement on the server. A connection without any response is aborted, and the server ends transactions that a client
left open. These are session settings, so a pooler must keep one session per connection (PgBouncer: pool_mode =
session).
"""

import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from mqgate.core.errors import StorageRefused
from mqgate.core.urls import can_show_hosts

__all__ = ["Connection", "Timeouts", "abort", "connect_outside_pool", "is_alive", "open_pool"]

Connection = AsyncConnection[TupleRow]
# After this time the pool stops its own attempts, whose pauses double up to minutes, and connects on demand.
_RECONNECT = 1.0
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Deadlines of database operations."""

    connect: timedelta = timedelta(seconds=3)
    checkout: timedelta = timedelta(seconds=2)
    statement: timedelta = timedelta(seconds=5)


def open_pool(
    url: str,
    *,
    schema: str,
    min_size: int,
    max_size: int,
    timeouts: Timeouts,
    attempted: Callable[[psycopg.Error | None], None],
) -> AsyncConnectionPool[Connection]:
    """Return a pool that is not open yet. `attempted` receives the error of every connection attempt, or None."""

    class ReportingConnection(AsyncConnection[TupleRow]):
        """Connection that reports failed attempts, which the pool does not."""

        @classmethod
        async def connect(cls, conninfo: str = "", **options: Any) -> Self:
            try:
                connection = await super().connect(conninfo, **options)
            except psycopg.Error as error:
                attempted(error)
                raise
            attempted(None)
            return connection

    settings = {
        "search_path": f'"{schema}"',
        "TimeZone": "UTC",
        "default_transaction_isolation": "read committed",
        "statement_timeout": str(timeouts.statement // _MS),
        "lock_timeout": str(timeouts.statement // _MS // 2),
        "idle_in_transaction_session_timeout": str(2 * timeouts.statement // _MS),
    }

    async def configure(connection: Connection) -> None:
        names = list(settings)
        await connection.execute(
            b"SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS setting (name, value)",
            (names, [settings[name] for name in names]),
        )

    return AsyncConnectionPool(
        _with_defaults(url, timeouts),
        connection_class=ReportingConnection,
        kwargs={"autocommit": True},
        min_size=min_size,
        max_size=max_size,
        open=False,
        configure=configure,
        name="mqgate",
        reconnect_timeout=_RECONNECT,
    )


async def connect_outside_pool(url: str, timeouts: Timeouts) -> Connection:
    """Return a connection outside the pool, without statement timeout."""
    return await AsyncConnection.connect(_with_defaults(url, timeouts), autocommit=True)


def _with_defaults(url: str, timeouts: Timeouts) -> str:
    """Return the URL with defaults: the writable one of several hosts, and TCP keepalives."""
    seconds = max(timeouts.connect // timedelta(seconds=1), 1)
    defaults = {
        "application_name": "mqgate",
        "target_session_attrs": "read-write",
        "connect_timeout": str(seconds),
        "client_encoding": "utf8",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": str(2 * timeouts.statement // _MS),
    }
    if not can_show_hosts(url):
        raise StorageRefused("[postgres] url: write @ as %40 and / as %2F in the password")
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The text of the error contains the URL with the password.
        raise StorageRefused("[postgres] url is invalid: use postgresql://user:password@host:5432/database") from None
    return make_conninfo("", **(defaults | given))


def is_alive(connection: Connection) -> bool:
    """Return whether an idle connection is open, without a round trip."""
    if connection.closed:
        return False
    # Unrequested data means that the server closed the connection. A notice, which is rare, costs a new connection.
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


def abort(connection: Connection) -> None:
    """Shut the socket down, so that a pending statement fails at once."""
    if connection.closed:
        return
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
