"""A scope: the lease state of a group, or of one broadcast client; and the tokens of a group's rate limit.

What both ways of leasing stand on: whole queues (queue_leases) and single messages (message_leases).
"""

import math
from datetime import timedelta
from typing import NamedTuple

from mqgate.adapters.sqlite.engine import queries
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.entries import Group, Mode
from mqgate.core.tokens import Bucket

SQL = queries("lease_scope")
_MS = timedelta(milliseconds=1)


class Scope(NamedTuple):
    """One row of lease_scope."""

    number: int
    group: str
    client: str
    incarnation: str
    last_seen: int
    epoch: int
    in_flight: int


def scope_of(tx: Transaction, group: Group, client: str, *, is_contact: bool = False) -> Scope | None:
    """The scope; None if there is none, or if a broadcast client was idle for too long.

    A contact of the client itself keeps it alive; somebody who looks at it does not.
    """
    scope = find(tx, group.name, client)
    if scope is None or group.mode is not Mode.BROADCAST:
        return scope
    if scope.last_seen + group.client_ttl // _MS <= tx.now_ms:
        drop(tx, scope.number)
        return None
    if is_contact:
        tx.execute(SQL["touch_scope"], (tx.now_ms, scope.number))
    return scope


def find(tx: Transaction, group: str, client: str) -> Scope | None:
    row = tx.one(SQL["scope"], (group, client))
    return None if row is None else Scope(row[0], group, client, *row[1:])


def drop(tx: Transaction, scope: int) -> None:
    """Forget everything that hangs on a scope."""
    for name, statement in SQL.items():
        if name.startswith("drop_all_"):
            tx.execute(statement, (scope,))


def take_tokens(tx: Transaction, group: Group, most: int) -> int:
    assert group.rate_limit is not None  # noqa: S101 - for the type checker; the caller looked
    found = tx.one(SQL["tokens"], (group.name,))
    bucket = Bucket(*found) if found else Bucket.full(group.rate_limit, tx.now_ms)
    bucket = bucket.at(group.rate_limit, tx.now_ms)
    taken = min(most, int(bucket.tokens))
    bucket = bucket.take(taken)
    tx.execute(SQL["set_tokens"], (group.name, bucket.tokens, bucket.at_ms))
    return taken


def next_token_at(tx: Transaction, group: Group) -> int | None:
    found = tx.one(SQL["tokens"], (group.name,))
    if found is None or group.rate_limit is None:
        return None
    return tx.now_ms + math.ceil(Bucket(*found).at(group.rate_limit, tx.now_ms).wait_ms(group.rate_limit, 1))


def refund(tx: Transaction, group: Group, count: int) -> None:
    if not count or group.rate_limit is None:
        return
    found = tx.one(SQL["tokens"], (group.name,))
    if found:
        tx.execute(SQL["set_tokens"], (group.name, found[0] + count, found[1]))
