"""How a connection to PostgreSQL is made, and how to tell without a question that one is dead.

Every wait has an end: a connection is made or refused within `connect`, had from the pool within `checkout`, a
statement ends within `statement` on the server, and a server that says nothing at all is hung up on. Nobody waits
behind a transaction that its client left open. These settings are the session's: a pooler between us and the server
must keep a session for each of our connections (PgBouncer: pool_mode = session).
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

__all__ = ["Connection", "Timeouts", "connect_alone", "is_alive", "open_pool", "sever"]

Connection = AsyncConnection[TupleRow]
# Else a failed attempt would be followed by pauses that double up to minutes; so it is tried again on demand.
_RECONNECT = 1.0
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    connect: timedelta = timedelta(seconds=3)
    checkout: timedelta = timedelta(seconds=2)
    statement: timedelta = timedelta(seconds=5)


def open_pool(
    url: str,
    *,
    schema: str,
    least: int,
    most: int,
    timeouts: Timeouts,
    met: Callable[[psycopg.Error | None], None],
) -> AsyncConnectionPool[Connection]:
    """A pool that is not open yet; `met` hears how every attempt to connect ended."""

    class Told(AsyncConnection[TupleRow]):
        """The pool keeps to itself why it has no connection."""

        @classmethod
        async def connect(cls, conninfo: str = "", **options: Any) -> Self:
            try:
                made = await super().connect(conninfo, **options)
            except psycopg.Error as error:
                met(error)
                raise
            met(None)
            return made

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
        connection_class=Told,
        kwargs={"autocommit": True},
        min_size=least,
        max_size=most,
        open=False,
        configure=configure,
        name="mqgate",
        reconnect_timeout=_RECONNECT,
    )


async def connect_alone(url: str, timeouts: Timeouts) -> Connection:
    """A connection beside the pool; its statements may take as long as they do."""
    return await AsyncConnection.connect(_with_defaults(url, timeouts), autocommit=True)


def _with_defaults(url: str, timeouts: Timeouts) -> str:
    """The URL with what it does not say itself: among several hosts the one that takes writes, and silence noticed."""
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
        # Its text shows the URL, and so the password.
        raise StorageRefused("[postgres] url is not one: postgresql://user:password@host:5432/database") from None
    return make_conninfo("", **(defaults | given))


def is_alive(connection: Connection) -> bool:
    """Whether the server has not hung up on an idle connection: costs no journey to it."""
    if connection.closed:
        return False
    # What comes unasked is a goodbye; a mere notice, which is rare, costs a new connection.
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


def sever(connection: Connection) -> None:
    """Hang up: whoever waits for an answer on it hears at once that there will be none."""
    if connection.closed:
        return
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as twin:
        twin.shutdown(socket.SHUT_RDWR)
