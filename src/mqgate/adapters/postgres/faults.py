"""What PostgreSQL says, in mqgate's words: one error and one retry rule for each answer.

| from PostgreSQL                                           | becomes             | retry                              |
|-----------------------------------------------------------|---------------------|------------------------------------|
| no connection: refused, no route, starting, shutting down | storage_unavailable | yes; connected again on demand     |
| no place for another connection (53300)                   | storage_unavailable | yes; an operator gives it more     |
| a standby, or read-only (25006)                           | storage_unavailable | yes; on a new connection           |
| connection lost or silent: a read, a repeatable write     | storage_unavailable | done once more here; then yes      |
| connection lost or silent: any other write                | unknown             | yes: it may or may not be done     |
| deadlock, serialization failure, lock not had in time     | storage_unavailable | done again here a few times first  |
| statement took too long (57014)                           | storage_unavailable | yes; it was rolled back            |
| out of memory, input or output failed (53xxx, 58xxx)      | storage_unavailable | yes                                |
| disk full (53100)                                         | storage_full        | yes, when there is room            |
| all of our connections are in use                         | overloaded          | yes                                |
| wrong password or user, no such database, no right, else  | storage_refused     | no: an operator has to mend it     |
| a value it cannot keep (22xxx)                            | invalid_value       | no                                 |

While connecting there is no number for what went wrong, only the server's text: what is not known by its (English)
words counts as no connection.
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
# Whoever ends the connection may have done so before or after what was asked for was done.
_ENDED = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleInTransactionSessionTimeout)
_BUSY = re.compile(r"08|40|53|55|57|58|XX")
_REFUSED_AT_THE_DOOR = re.compile(
    r"authentication failed|no pg_hba\.conf entry|no password supplied|does not exist|not permitted to log in|"
    r"permission denied|certificate|does not support SSL|not currently accepting connections"
)
_NO_PLACE = re.compile(r"too many (clients|connections)|connection slots are reserved")
_STANDBY = re.compile(r"read-only|hot standby")


def is_conflict(error: psycopg.Error) -> bool:
    """Whether others were in the way: it was rolled back, and may go well at the next try."""
    return isinstance(error, _CONFLICTS)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, and with it the answer."""
    if isinstance(error, PoolTimeout | PoolClosed | TooManyRequests):
        return False
    is_silent = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None
    return is_silent or isinstance(error, _ENDED)


def is_read_only(error: psycopg.Error) -> bool:
    """Whether this server takes no writes: the connection leads to the wrong one."""
    return isinstance(error, errors.ReadOnlySqlTransaction)


def translated(error: psycopg.Error, *, at_the_door: psycopg.Error | None, is_unknown: bool) -> MqgateError:
    """The fact that an error reports.

    `at_the_door`: why the newest attempt to connect failed, if it did. `is_unknown`: it was sent, and may be done.
    """
    if isinstance(error, PoolTimeout | TooManyRequests) and at_the_door is not None:
        return _from_the_door(at_the_door)
    if is_lost(error):
        return _unknown(error) if is_unknown else _silent(error)
    for kinds, fact in _FACTS:
        if isinstance(error, kinds):
            return fact(error)
    if _BUSY.match(error.sqlstate or ""):
        return StorageUnavailable(f"PostgreSQL does not answer as it should: {_said(error)}", retry_after=1)
    return StorageRefused(f"PostgreSQL refuses the gateway: {_said(error)}")


def _from_the_door(error: psycopg.Error) -> MqgateError:
    text = str(error)
    if _REFUSED_AT_THE_DOOR.search(text):
        return StorageRefused(f"PostgreSQL does not let the gateway in: {_said(error)}")
    if _NO_PLACE.search(text):
        return _no_place(error)
    if _STANDBY.search(text):
        return _standby(error)
    return StorageUnavailable(f"no connection to PostgreSQL: {_said(error)}", retry_after=1)


def _silent(error: psycopg.Error) -> MqgateError:
    return StorageUnavailable(f"PostgreSQL does not answer: {_said(error)}", retry_after=1)


def _unknown(error: psycopg.Error) -> MqgateError:
    return OutcomeUnknown(
        f"PostgreSQL did not say whether it did this: repeat it with the same idempotency key ({_said(error)})",
        retry_after=1,
    )


def _standby(error: psycopg.Error) -> MqgateError:
    return StorageUnavailable(
        f"this PostgreSQL takes no writes: name the primary, or all of its hosts, in [postgres] url ({_said(error)})",
        retry_after=1,
    )


def _no_place(error: psycopg.Error) -> MqgateError:
    return StorageUnavailable(
        "PostgreSQL has no place for another connection: raise its max_connections or lower [postgres] "
        f"max_connections ({_said(error)})",
        retry_after=1,
    )


def _stopping(_: psycopg.Error) -> MqgateError:
    return StorageUnavailable("the gateway is stopping")


def _exhausted(_: psycopg.Error) -> MqgateError:
    return Overloaded("all connections to PostgreSQL are in use: raise [postgres] max_connections", retry_after=1)


def _full(_: psycopg.Error) -> MqgateError:
    return StorageFull("free some disk space of PostgreSQL's; nothing stored was lost")


def _unfit(error: psycopg.Error) -> MqgateError:
    return InvalidValue(f"PostgreSQL cannot keep this: {_said(error)}")


def _said(error: psycopg.Error) -> str:
    """Its words on one line."""
    return " ".join(str(error).split()) or type(error).__name__


_FACTS: Sequence[tuple[type[psycopg.Error] | tuple[type[psycopg.Error], ...], Callable[[psycopg.Error], MqgateError]]]
_FACTS = (
    (PoolClosed, _stopping),
    ((PoolTimeout, TooManyRequests), _exhausted),
    (errors.DiskFull, _full),
    (errors.ReadOnlySqlTransaction, _standby),
    (errors.TooManyConnections, _no_place),
    (psycopg.DataError, _unfit),
)
