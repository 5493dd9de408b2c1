"""Translation of PostgreSQL errors: one error class and one retry rule for each.

| from PostgreSQL                                           | becomes             | retry                              |
|-----------------------------------------------------------|---------------------|------------------------------------|
| no connection: refused, no route, starting, shutting down | storage_unavailable | yes; connected again on demand     |
| too many connections (53300)                              | storage_unavailable | yes; raise max_connections         |
| a standby, or read-only (25006)                           | storage_unavailable | yes; on a new connection           |
| connection lost: a read, a repeatable write               | storage_unavailable | repeated here first; then yes      |
| connection lost: any other write                          | unknown             | yes: it may or may not be done     |
| deadlock, serialization failure, lock timeout             | storage_unavailable | repeated here first; then yes      |
| statement took too long (57014)                           | storage_unavailable | yes; it was rolled back            |
| out of memory, input or output failed (53xxx, 58xxx)      | storage_unavailable | yes                                |
| disk full (53100)                                         | storage_full        | yes, when there is space           |
| all connections of the pool are in use                    | overloaded          | yes                                |
| wrong password or user, no database, no right, other      | storage_refused     | no: an operator must correct it    |
| a value that it cannot store (22xxx)                      | invalid_value       | no                                 |

Errors of a connection attempt have no code, only a text. A text that is not recognised (they are matched in English)
counts as no connection.
"""

import re
from collections.abc import Callable, Sequence

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from mqgate.core.errors import (
    InvalidValue,
    MqgateError,
    OutcomeUnknown,
    Overloaded,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)

__all__ = ["is_conflict", "is_lost", "is_read_only", "translated"]

_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)
# The server may have ended the connection before or after it executed the statement.
_ENDED = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleInTransactionSessionTimeout)
_BUSY = re.compile(r"08|40|53|55|57|58|XX")
_CONNECT_REFUSED = re.compile(
    r"authentication failed|no pg_hba\.conf entry|no password supplied|does not exist|not permitted to log in|"
    r"permission denied|certificate|does not support SSL|not currently accepting connections"
)
_TOO_MANY_CONNECTIONS = re.compile(r"too many (clients|connections)|connection slots are reserved")
_STANDBY = re.compile(r"read-only|hot standby")


def is_conflict(error: psycopg.Error) -> bool:
    """Return whether the transaction was rolled back because of a conflict. A retry may succeed."""
    return isinstance(error, _CONFLICTS)


def is_lost(error: psycopg.Error) -> bool:
    """Return whether the connection was lost, and with it the result."""
    if isinstance(error, PoolTimeout | PoolClosed | TooManyRequests):
        return False
    has_no_code = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None
    return has_no_code or isinstance(error, _ENDED)


def is_read_only(error: psycopg.Error) -> bool:
    """Return whether the server is read-only, because it is not the primary."""
    return isinstance(error, errors.ReadOnlySqlTransaction)


def translated(error: psycopg.Error, *, connect_error: psycopg.Error | None, is_unknown: bool) -> MqgateError:
    """Return the error of mqgate for an error of psycopg.

    `connect_error` is the error of the newest connection attempt, if it failed. `is_unknown`: the statement was sent
    and may have been executed.
    """
    if isinstance(error, PoolTimeout | TooManyRequests) and connect_error is not None:
        return _connect_failed(connect_error)
    if is_lost(error):
        return _unknown(error) if is_unknown else _no_response(error)
    for kinds, translate in _BY_CLASS:
        if isinstance(error, kinds):
            return translate(error)
    if _BUSY.match(error.sqlstate or ""):
        return StorageUnavailable(f"PostgreSQL reported a temporary error: {_text(error)}", retry_after=1)
    return StorageRefused(f"PostgreSQL rejected a statement: {_text(error)}")


def _connect_failed(error: psycopg.Error) -> MqgateError:
    text = str(error)
    if _CONNECT_REFUSED.search(text):
        return StorageRefused(f"access denied by PostgreSQL, check [postgres] url: {_text(error)}")
    if _TOO_MANY_CONNECTIONS.search(text):
        return _too_many_connections(error)
    if _STANDBY.search(text):
        return _standby(error)
    return StorageUnavailable(f"no connection to PostgreSQL: {_text(error)}", retry_after=1)


def _no_response(error: psycopg.Error) -> MqgateError:
    return StorageUnavailable(f"PostgreSQL did not respond: {_text(error)}", retry_after=1)


def _unknown(error: psycopg.Error) -> MqgateError:
    return OutcomeUnknown(
        f"the outcome of a write is unknown: repeat it with the same idempotency key ({_text(error)})",
        retry_after=1,
    )


def _standby(error: psycopg.Error) -> MqgateError:
    return StorageUnavailable(
        f"PostgreSQL is read-only: list the primary, or all hosts, in [postgres] url ({_text(error)})",
        retry_after=1,
    )


def _too_many_connections(error: psycopg.Error) -> MqgateError:
    return StorageUnavailable(
        "PostgreSQL has too many connections: raise its max_connections or lower [postgres] "
        f"max_connections ({_text(error)})",
        retry_after=1,
    )


def _stopping(_: psycopg.Error) -> MqgateError:
    return StorageUnavailable("the gateway is stopping")


def _pool_exhausted(_: psycopg.Error) -> MqgateError:
    return Overloaded("all connections to PostgreSQL are in use: raise [postgres] max_connections", retry_after=1)


def _full(_: psycopg.Error) -> MqgateError:
    return StorageFull("the disk of PostgreSQL is full: free some space; no stored data was lost")


def _invalid_value(error: psycopg.Error) -> MqgateError:
    return InvalidValue(f"PostgreSQL cannot store this value: {_text(error)}")


def _text(error: psycopg.Error) -> str:
    """Return the text of an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__


_BY_CLASS: Sequence[
    tuple[type[psycopg.Error] | tuple[type[psycopg.Error], ...], Callable[[psycopg.Error], MqgateError]]
]
_BY_CLASS = (
    (PoolClosed, _stopping),
    ((PoolTimeout, TooManyRequests), _pool_exhausted),
    (errors.DiskFull, _full),
    (errors.ReadOnlySqlTransaction, _standby),
    (errors.TooManyConnections, _too_many_connections),
    (psycopg.DataError, _invalid_value),
)
