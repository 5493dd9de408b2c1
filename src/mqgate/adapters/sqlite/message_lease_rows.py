"""The rows of a lease scope in message mode."""

import json
from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from mqgate.adapters.sqlite.engine import queries
from mqgate.adapters.sqlite.lease_writer import Statement
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.core.leases.message_state import (
    FailedMessage,
    MessageChanges,
    MessageGrant,
    MessageQueue,
    MessageScope,
    bits_of,
)

__all__ = ["forget_grants", "holders", "load", "load_grants", "statements"]

_QUEUE = tuple(member.name for member in fields(MessageQueue))[:11]
_FAILED = tuple(member.name for member in fields(FailedMessage))
_GRANT = tuple(member.name for member in fields(MessageGrant))
# The columns have the names of the members, except these.
_COLUMN_OF = {
    "name": "queue",
    "revoked_epoch": "swept_epoch",
    "pending_pull": "placing",
    "is_lease_expired": "lapsed",
    "fingerprint": "attempt_shape",
}


def _columns(members: Iterable[str]) -> str:
    return ", ".join(_COLUMN_OF.get(name, name) for name in members)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _completed(sql: str) -> str:
    for name, text in (
        ("{queue_columns}", _columns(_QUEUE)),
        ("{queue_values}", _marks(len(_QUEUE) + 1)),
        ("{failed_columns}", _columns(_FAILED)),
        ("{failed_values}", _marks(len(_FAILED))),
        ("{grant_columns}", _columns(_GRANT)),
        ("{held_columns}", ", ".join(f"grants.{name}" for name in _columns(_GRANT).split(", "))),
        ("{grant_values}", _marks(len(_GRANT) + 1)),
    ):
        sql = sql.replace(name, text)
    return sql


_SQL = {name: _completed(sql) for name, sql in queries("message_lease_rows").items()}
_ENDS, _FIRST_BITS, _LAST_BITS = _GRANT.index("ends"), _GRANT.index("given"), _GRANT.index("nacked")
_queue_values = attrgetter(*_QUEUE)
_failed_values = attrgetter(*_FAILED)


def load(view: View, number: int, scope: MessageScope) -> MessageScope:
    """Read the stored state of a scope. Grants that ended are left to `load_grants`."""
    for row in view.all(_SQL["queues"], (number,)):
        scope.add_queue(MessageQueue(*row))
    for row in view.all(_SQL["active_grants"], (number,)):
        scope.add_grant(_grant(row))
    for queue, offset, *values in view.all(_SQL["failed"], (number,)):
        scope.add_failed(queue, offset, FailedMessage(*values))
    for queue, offset, key in view.all(_SQL["keys"], (number,)):
        scope.queues[queue].add_key(offset, key)
    for grant in list(scope.grants.values()):
        if grant.attempt is not None and grant.acked | grant.nacked:
            # Release 0.1.0 keeps the attempt of a settled grant, and ignores it.
            scope.forget_attempt(grant.attempt)
    return scope


def load_grants(view: View, number: int, epochs: Iterable[int]) -> list[MessageGrant]:
    """Read older grants, as far as they are not forgotten."""
    rows = (view.one(_SQL["grant"], (number, epoch)) for epoch in epochs)
    return [_grant(row) for row in rows if row is not None]


def _grant(row: tuple[Any, ...]) -> MessageGrant:
    values = list(row)
    ends = values[_ENDS]
    values[_ENDS] = None if ends == "{}" else {int(bit): until for bit, until in json.loads(ends).items()}
    for column in range(_FIRST_BITS, _LAST_BITS + 1):
        values[column] = int(values[column], 16)
    return MessageGrant(*values)


def forget_grants(tx: Transaction, number: int, min_kept: int, before_ms: int, limit: int) -> list[int]:
    """Delete grants that ended before an instant, except the newest. Return their epochs."""
    return [epoch for (epoch,) in tx.all(_SQL["forget_grants"], (number, min_kept, before_ms, limit))]


def holders(view: View, group: str, now_ms: int) -> list[tuple[str, str]]:
    """Read the clients and queues of the leases that have not expired."""
    grants = map(_grant, view.all(_SQL["held"], (group,)))
    return [
        (grant.client, grant.queue)
        for grant in grants
        if any(grant.end_of(number) > now_ms for number in bits_of(grant.open))
    ]


def statements(number: int, scope: MessageScope) -> list[Statement]:
    """Take the changes of a scope as statements."""
    changes, scope.changes = scope.changes, MessageChanges()
    found: list[Statement] = [
        (_SQL["set_queue"], (number, *_queue_values(scope.queues[name]))) for name in changes.queues
    ]
    found += [(_SQL["set_grant"], _grant_values(number, scope.grants[epoch])) for epoch in changes.grants]
    for queue, offset in changes.failed:
        failed = scope.queues[queue].failed.get(offset)
        if failed is None:
            found.append((_SQL["remove_failed"], (number, queue, offset)))
        else:
            found.append((_SQL["set_failed"], (number, queue, offset, *_failed_values(failed))))
    for queue, offset in changes.keys:
        key = scope.queues[queue].keys.get(offset)
        if key is None:
            found.append((_SQL["remove_key"], (number, queue, offset)))
        else:
            found.append((_SQL["set_key"], (number, queue, offset, key)))
    return found


def _grant_values(number: int, grant: MessageGrant) -> tuple[Any, ...]:
    return (
        number,
        grant.epoch,
        grant.queue,
        grant.start,
        grant.delivery,
        grant.granted_at,
        grant.base_until,
        json.dumps(grant.ends) if grant.ends else "{}",
        grant.until,
        f"{grant.given:x}",
        f"{grant.open:x}",
        f"{grant.acked:x}",
        f"{grant.nacked:x}",
        grant.ended_at,
        grant.attempt,
        grant.fingerprint,
        grant.serves,
        grant.returned,
        grant.client,
        grant.again,
        grant.first_open,
    )
