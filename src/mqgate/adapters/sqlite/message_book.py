"""Message-mode leases of one scope during one step: read what is needed once, write what changed once.

A grant is a range of a queue under one epoch, with a bit per message: given, open (still leased), acked, nacked.
A message that is neither open nor acked nor nacked came back by itself: its lease ended, or it was given back; then
its row in message_failed says when it is ready again, and until somebody else gets it a late settlement still
counts.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from mqgate.adapters.sqlite.engine import queries
from mqgate.adapters.sqlite.lease_scope import Scope
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.entries import Group
from mqgate.core.errors import InvalidValue
from mqgate.core.lease import (
    MAX_HOLD,
    ExhaustedMessage,
    Lease,
    Settlement,
    SettlementOutcome,
    SettlementResult,
    Verb,
)
from mqgate.core.message import instant

_DICE = random.Random()  # noqa: S311 - jitter, not secrets
_MS = timedelta(milliseconds=1)
_EXPIRED = "the lease ended without an answer"


class QueueRow(NamedTuple):
    queue: str
    head_min: int
    head_max: int
    committed: int
    cursor: int
    swept_epoch: int
    placing: int
    served_at: int
    last_client: str | None
    last_consumed_at: int
    expired: int


class FailedRow(NamedTuple):
    queue: str
    offset: int
    epoch: int
    delivery: int
    ready_at: int | None
    dying: int
    first_at: int
    last_at: int
    reason: str | None
    lapsed: int


_GRANT_COLUMNS = (
    "epoch, queue, start, delivery, granted_at, base_until, ends, until, given, open, acked, nacked, ended_at, "
    "attempt_shape, serves, returned, client, again"
)
SQL = {
    name: sql.replace("{queue_columns}", ", ".join(QueueRow._fields))
    .replace("{failed_columns}", ", ".join(FailedRow._fields))
    .replace("{grant_columns}", _GRANT_COLUMNS)
    for name, sql in queries("message_leases").items()
}


@dataclass(slots=True)
class Granted:
    """A grant as its row says; bits as whole numbers."""

    epoch: int
    queue: str
    start: int
    delivery: int
    granted_at: int
    base_until: int
    ends: dict[int, int]
    until: int
    given: int
    open: int
    acked: int
    nacked: int
    ended_at: int
    shape: str | None
    serves: int
    returned: int
    client: str
    again: int
    is_changed: bool = field(default=False)

    @property
    def is_touched(self) -> bool:
        """Whether something of it was settled, or came back."""
        return self.open != self.given or bool(self.acked | self.nacked)

    def end_of(self, number: int) -> int:
        return self.ends.get(number, self.base_until) if self.ends else self.base_until

    def open_numbers(self) -> Iterator[int]:
        bits = self.open
        while bits:
            low = bits & -bits
            yield low.bit_length() - 1
            bits ^= low


def granted(row: tuple[object, ...]) -> Granted:
    values = list(row)
    values[6] = {int(number): end for number, end in json.loads(str(values[6])).items()} if row[6] != "{}" else {}
    for column in range(8, 12):
        values[column] = int(str(values[column]), 16)
    return Granted(*values)  # type: ignore[arg-type]  # SQLite's columns are as the schema says


class Book:
    def __init__(self, tx: Transaction, scope: Scope, group: Group, closed: frozenset[str] = frozenset()) -> None:
        self.tx = tx
        self.scope = scope
        self.group = group
        self.closed = closed
        self.epoch, self.in_flight = self._counters = scope.epoch, scope.in_flight
        self._grants: dict[int, Granted | None] = {}
        self._gone: dict[str, tuple[int | None, int]] = {}
        # Whether it is worth asking for messages that are ready again, or dying, or that retention took.
        self.has_due = self.has_dying = self.has_overtaken = True
        self._touched: set[str] = set()
        self._consumed: set[str] = set()

    def close(self) -> None:
        """Write back what changed."""
        self.flush()
        if (self.epoch, self.in_flight) != self._counters:
            self.tx.execute(SQL["set_counters"], (self.epoch, self.in_flight, self.scope.number))

    def flush(self) -> None:
        """Write back what was settled; committed moves to the first message that is not, before it is asked for."""
        for grant in self._grants.values():
            if grant is not None and grant.is_changed:
                self._save(grant)
        for queue in self._touched:
            self._commit(queue)
        self._touched.clear()

    def grant(self, epoch: int) -> Granted | None:
        if epoch not in self._grants:
            row = self.tx.one(SQL["grant"], (self.scope.number, epoch))
            self._grants[epoch] = None if row is None else granted(row)
        return self._grants[epoch]

    def keep(self, grant: Granted) -> Granted:
        """The grant as this step knows it, should it have been read before."""
        known = self._grants.setdefault(grant.epoch, grant)
        return known or grant

    def queue(self, name: str) -> QueueRow | None:
        row = self.tx.one(SQL["queue"], (self.scope.number, name))
        return None if row is None else QueueRow(*row)

    def failed(self, queue: str, offset: int) -> FailedRow | None:
        row = self.tx.one(SQL["failed"], (self.scope.number, queue, offset))
        return None if row is None else FailedRow(*row)

    def touch(self, queue: str) -> None:
        self._touched.add(queue)

    def shut(self, grant: Granted, number: int) -> None:
        """A message of a grant is no longer leased."""
        bit = 1 << number
        if grant.open & bit:
            grant.open ^= bit
            grant.is_changed = True
            self.in_flight -= 1
            if not grant.open:
                grant.ended_at = self.tx.now_ms
            self.touch(grant.queue)

    def finish(self, queue: str, offset: int) -> None:
        """A message is settled for good: the next of its key may go."""
        tx, scope = self.tx, self.scope.number
        tx.execute(SQL["unfail"], (scope, queue, offset))
        self.touch(queue)
        if self.group.is_ordered:
            left = tx.one(SQL["leave_order"], (scope, queue, offset))
            if left is not None:
                behind = tx.one(SQL["next_of_key"], (scope, queue, left[0]))[0]
                self.has_due = True
                tx.execute(SQL["let_go"], (tx.now_ms, scope, queue, behind))

    def settle(self, settlement: Settlement) -> SettlementResult:
        lease = settlement.lease
        grant = self.grant(lease.epoch)
        if grant is None or lease.incarnation != self.scope.incarnation:
            return SettlementResult(SettlementOutcome.GONE)
        number = lease.start - grant.start
        outcome = self._judge(settlement.verb, lease, grant, 1 << number)
        if not outcome.is_new:
            return SettlementResult(outcome)
        if settlement.verb is Verb.ACK:
            self.shut(grant, number)
            grant.acked |= 1 << number
            grant.is_changed = True
            self._consumed.add(grant.queue)
            # A first delivery that never came back has no row to remove, and without order nobody waits behind it.
            if grant.again or outcome is SettlementOutcome.LATE_APPLIED or self.group.is_ordered:
                self.finish(grant.queue, lease.start)
            return SettlementResult(outcome)
        if settlement.verb is Verb.NACK:
            return self._nack(grant, number, settlement, outcome)
        return self._extend(grant, number, settlement, outcome)

    def _judge(self, verb: Verb, lease: Lease, grant: Granted, bit: int) -> SettlementOutcome:
        if grant.acked & bit:
            return SettlementOutcome.DUPLICATE if verb is Verb.ACK else SettlementOutcome.LOST
        if grant.nacked & bit:
            return SettlementOutcome.DUPLICATE if verb is Verb.NACK else SettlementOutcome.LOST
        swept, first = self._gone_before(lease.queue)
        if swept is None or lease.epoch <= swept:
            return SettlementOutcome.GONE
        if grant.open & bit:
            late = grant.end_of(lease.start - grant.start) <= self.tx.now_ms
            return SettlementOutcome.LATE_APPLIED if late else SettlementOutcome.APPLIED
        failed = self.failed(lease.queue, lease.start)
        if failed and failed.epoch == lease.epoch and failed.ready_at is not None:
            return SettlementOutcome.LATE_APPLIED
        return SettlementOutcome.GONE if lease.start < first else SettlementOutcome.LOST

    def _gone_before(self, queue: str) -> tuple[int | None, int]:
        """The last epoch that a seek swept away, None if there is no such queue; and the first message that is kept."""
        if queue not in self._gone:
            row = self.queue(queue)
            self._gone[queue] = (None, 0) if row is None else (row.swept_epoch, row.head_min)
        return self._gone[queue]

    def _nack(
        self, grant: Granted, number: int, settlement: Settlement, outcome: SettlementOutcome
    ) -> SettlementResult:
        delay = settlement.delay
        if delay is None:
            delay = self.group.backoff.delay(grant.delivery, _DICE)
        self.shut(grant, number)
        grant.nacked |= 1 << number
        grant.is_changed = True
        ready_at = self.tx.now_ms + delay // _MS
        exhausted = self.fail(grant, number, ready_at, self.tx.now_ms, settlement.reason or "nacked", lease_expired=0)
        return SettlementResult(outcome, exhausted=exhausted)

    def _extend(
        self, grant: Granted, number: int, settlement: Settlement, outcome: SettlementOutcome
    ) -> SettlementResult:
        until = self.tx.now_ms + (settlement.visibility or self.group.visibility) // _MS
        if until > grant.granted_at + MAX_HOLD // _MS:
            limit = MAX_HOLD.total_seconds()
            error = InvalidValue(
                "a lease is held for 12 hours in all at most: ack or nack it", field="visibility", limit=limit
            )
            return SettlementResult(SettlementOutcome.INVALID, error=error)
        bit = 1 << number
        if not grant.open & bit:
            # It had come back already, and nobody had taken it: leased again.
            grant.open |= bit
            grant.again = 1
            self.in_flight += 1
            offset = grant.start + number
            values = (grant.epoch, grant.delivery, grant.granted_at, self.scope.number, grant.queue, offset)
            self.tx.execute(SQL["regrant"], values)
        grant.ends[number] = until
        grant.is_changed = True
        return SettlementResult(outcome, leased_until=instant(until))

    def fail(
        self, grant: Granted, number: int, ready_at: int, at: int, reason: str, *, lease_expired: int
    ) -> ExhaustedMessage | None:
        """A delivery failed: ready again later, or never."""
        offset = grant.start + number
        is_dead = grant.delivery >= self.group.max_attempts
        self.tx.execute(
            SQL["fail"],
            (
                self.scope.number,
                grant.queue,
                offset,
                grant.epoch,
                grant.delivery,
                None if is_dead else ready_at,
                int(is_dead),
                grant.granted_at,
                at,
                reason,
                lease_expired,
            ),
        )
        self.touch(grant.queue)
        if not is_dead:
            return None
        row = self.failed(grant.queue, offset)
        return None if row is None else self.exhausted(row)

    def is_overdrawn(self, row: FailedRow) -> bool:
        """Whether a message that is ready again had all its deliveries: the limit was lowered since it failed."""
        return row.delivery >= self.group.max_attempts

    def doom(self, row: FailedRow) -> None:
        """It is not ready again, but dies; from here on nobody can settle it."""
        self.tx.execute(SQL["doom"], (self.scope.number, row.queue, row.offset))
        self.has_dying = True

    def exhausted(self, row: FailedRow) -> ExhaustedMessage:
        scope = self.scope
        lease = Lease(scope.group, "", row.queue, row.offset, row.offset + 1, row.epoch, scope.incarnation)
        times = instant(row.first_at), instant(row.last_at)
        return ExhaustedMessage(lease, row.delivery, *times, row.reason, is_lease_expired=bool(row.lapsed))

    def expire_ended(self) -> None:
        """Leases that ended are failed deliveries; the backoff counts from their end."""
        tx = self.tx
        self.has_due = self.has_dying = True
        while rows := tx.all(SQL["ended_grants"], (self.scope.number, tx.now_ms)):
            for row in rows:
                grant = self.keep(granted(row))
                for number in list(grant.open_numbers()):
                    end = grant.end_of(number)
                    if end <= tx.now_ms:
                        delay = self.group.backoff.delay(grant.delivery, _DICE) // _MS
                        self.shut(grant, number)
                        self.fail(grant, number, end + delay, end, _EXPIRED, lease_expired=1)
                self._save(grant)

    def _save(self, grant: Granted) -> None:
        numbers = grant.open_numbers()
        first = next(numbers, None)
        until = grant.base_until
        if first is not None and grant.ends:
            until = min(grant.end_of(number) for number in grant.open_numbers())
        grant.until = until
        self.tx.execute(
            SQL["save_grant"],
            (
                f"{grant.given:x}",
                f"{grant.open:x}",
                f"{grant.acked:x}",
                f"{grant.nacked:x}",
                grant.start + (first or 0),
                grant.until,
                json.dumps(grant.ends) if grant.ends else "{}",
                grant.ended_at,
                grant.serves,
                grant.returned,
                grant.again,
                self.scope.number,
                grant.epoch,
            ),
        )
        grant.is_changed = False

    def _commit(self, queue: str) -> None:
        consumed_at = self.tx.now_ms if queue in self._consumed else None
        self.tx.execute(SQL["commit"], (self.scope.number, queue, consumed_at))
