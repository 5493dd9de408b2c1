"""Queue locks in SQLite: the steps of queue and broadcast mode, each inside one writer's transaction.

A queue is free (held = 0) or held until free_at. A lease that ends is not cleared by anybody: the next step that looks
sees that free_at has passed. Its epoch stays current until the next grant, so a late ack still counts until
somebody else has the queue. `exhausted` marks a queue whose first message was granted for the last time.

Queues that the log cannot read now (`closed`) are left out by statements of their own (`..._open`): without any, which
is nearly always, the plain ones find their answer at the first entry of an index.
"""

import json
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from mqgate.adapters.sqlite.engine import queries
from mqgate.adapters.sqlite.lease_scope import Scope, next_token_at, refund, scope_of, take_tokens
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.entries import Group, OnPoison
from mqgate.core.errors import AttemptMismatch, InvalidValue
from mqgate.core.lease import (
    AGEING,
    MAX_HOLD,
    AcquireRequest,
    AcquireResult,
    ExhaustedMessage,
    Grant,
    Lease,
    OffsetRange,
    Position,
    PullReport,
    QueueBounds,
    QueueLeaseState,
    ReceiveState,
    SeekResult,
    Settlement,
    SettlementOutcome,
    SettlementResult,
    Verb,
    all_serves_returned,
    batch_size,
    decide_outcome,
    mark_serve_returned,
)
from mqgate.core.message import instant

_DICE = random.Random()  # noqa: S311 - jitter, not secrets
_MS = timedelta(milliseconds=1)


class Row(NamedTuple):
    """A queue's lease state; the columns are selected by these names."""

    queue: str
    head_min: int
    head_max: int
    committed: int
    epoch: int
    leap: int
    swept_epoch: int
    batch_next: int
    granted_at: int
    leased_until: int
    held: int
    free_at: int
    attempt: str | None
    attempt_shape: str | None
    serves: int
    returned: int
    attempts: int
    exhausted: int
    first_at: int
    reason: str | None
    waiting_since: int
    last_client: str | None
    last_consumed_at: int
    expired: int


SQL = {name: sql.replace("{columns}", ", ".join(Row._fields)) for name, sql in queries("queue_leases").items()}


def _lease(scope: Scope, row: Row, epoch: int) -> Lease:
    return Lease(scope.group, scope.client, row.queue, row.committed, row.batch_next, epoch, scope.incarnation)


def open_queues(tx: Transaction, scope: int, starts: Mapping[str, int], bounds: Mapping[str, QueueBounds]) -> None:
    """Add queues; those that are there stay where they are."""
    for queue, start in starts.items():
        head = bounds[queue]
        tx.execute(SQL["add_queue"], (scope, queue, head.min, head.max, start, tx.now_ms))


def acquire(tx: Transaction, scope: Scope, request: AcquireRequest) -> AcquireResult:
    group = request.group
    closed = request.closed
    settled = [settle(tx, group, each) for each in request.settlements]
    exhausted = [each.exhausted for each in settled if each.exhausted and each.exhausted.lease.queue not in closed]
    # Before any answer: ends of queues are told once.
    rewound, unknown_queues = see_heads(tx, scope, request.bounds, request.last_append_ms)
    unknown_queues = [queue for queue in unknown_queues if queue not in closed]
    held = None if request.attempt is None else held_by_attempt(tx, scope, request)
    if unknown_queues:
        return AcquireResult(
            state_exists=True, settled=settled, rewound=rewound, exhausted=exhausted, unknown_queues=unknown_queues
        )
    if held is not None:
        same = replay(tx, scope, held)
        return AcquireResult(state_exists=True, settled=settled, grants=(same,), rewound=rewound, exhausted=exhausted)
    if group.is_paused:
        return AcquireResult(
            state_exists=True, settled=settled, state=ReceiveState.PAUSED, rewound=rewound, exhausted=exhausted
        )
    exhausted += free_and_doom(tx, scope, group, closed)
    row = choose(tx, scope, closed)
    while row is not None and is_overdrawn(row, group):
        exhausted += _exhaust(tx, scope, group, row)
        row = choose(tx, scope, closed)
    given, lost = grant(tx, scope, request, row) if row else (None, skip_emptied(tx, scope, closed))
    state = ReceiveState.OK
    if given is None:
        state = why_empty(tx, scope) if row is None else ReceiveState.RATE_LIMITED
    elif request.attempt is not None:
        # From here on the attempt means this queue, though a lease that it had may be extended late.
        tx.execute(SQL["leave_attempt"], (scope.number, request.attempt, given.lease.queue))
    return AcquireResult(
        state_exists=True,
        settled=settled,
        grants=(given,) if given else (),
        state=state,
        lost=lost,
        rewound=rewound,
        exhausted=exhausted,
        next_at=None if given and not request.has_other_waiters else next_at(tx, scope, group, state, closed),
        has_more=given is not None and request.has_other_waiters and choose(tx, scope, closed) is not None,
    )


def see_heads(
    tx: Transaction, scope: Scope, bounds: Mapping[str, QueueBounds], last_append_ms: Mapping[str, int]
) -> tuple[int, list[str]]:
    """Take note of queues' ends: how far queues went back that came again shorter, and those that are not known."""
    rewound = 0
    unknown_queues = []
    for queue, head in bounds.items():
        since = min(last_append_ms.get(queue, tx.now_ms), tx.now_ms)
        seen = tx.one(SQL["see_head"], (head.min, head.max, since, scope.number, queue))
        if seen is None:
            unknown_queues.append(queue)
        elif seen[0] > head.max:
            rewound += seen[0] - head.min
            tx.execute(SQL["move"], (head.min, tx.now_ms, tx.now_ms, scope.number, queue))
    return rewound, unknown_queues


def held_by_attempt(tx: Transaction, scope: Scope, request: AcquireRequest) -> Row | None:
    """The queue that the same attempt was given, while its lease is untouched and it can be read."""
    found = tx.one(SQL["by_attempt"], (scope.number, request.attempt, tx.now_ms))
    if found is None:
        return None
    row = Row(*found)
    if row.attempt_shape != request.fingerprint:
        raise AttemptMismatch("use a new attemptId when max or visibility change", attemptId=request.attempt)
    return None if row.queue in request.closed else row


def replay(tx: Transaction, scope: Scope, row: Row) -> Grant:
    tx.execute(SQL["serve_again"], (scope.number, row.queue))
    lease, times = _lease(scope, row, row.epoch), (instant(row.granted_at), instant(row.leased_until))
    return Grant(lease, row.attempts, *times, row.serves + 1)


def free_and_doom(
    tx: Transaction, scope: Scope, group: Group, closed: frozenset[str] = frozenset()
) -> list[ExhaustedMessage]:
    """What time has done: leases that ended free their queues, or doom their message if it was the last attempt."""
    has_ended, has_exhausted = tx.one(SQL["look"], (scope.number, tx.now_ms))
    if has_ended:
        tx.execute(SQL["free_ended"], (scope.number, tx.now_ms))
    return _doom_exhausted(tx, scope, group, closed) if has_exhausted else []


def _doom_exhausted(tx: Transaction, scope: Scope, group: Group, closed: frozenset[str]) -> list[ExhaustedMessage]:
    """The messages whose last lease ended; from here on nobody can settle them."""
    exhausted = []
    for found in tx.all(SQL["exhausted"], (scope.number,)):
        row = Row(*found)
        if row.queue in closed:
            continue
        if row.attempts < group.max_attempts or row.committed < row.head_min:
            # The limit was raised, or retention was quicker.
            kept = row.attempts if row.committed >= row.head_min else 0
            tx.execute(SQL["relieve"], (kept, scope.number, row.queue))
        elif group.on_poison is OnPoison.DEAD:
            exhausted.append(_doom(tx, scope, row))
    return exhausted


def is_overdrawn(row: Row, group: Group) -> bool:
    """Whether a free queue's first message had all its attempts, though not by the limit under which it had them."""
    return row.attempts >= group.max_attempts and row.committed >= row.head_min


def _exhaust(tx: Transaction, scope: Scope, group: Group, row: Row) -> list[ExhaustedMessage]:
    """The limit was lowered: what was granted as often was granted for the last time."""
    tx.execute(SQL["exhaust"], (scope.number, row.queue))
    return [_doom(tx, scope, row)] if group.on_poison is OnPoison.DEAD else []


def _doom(tx: Transaction, scope: Scope, row: Row) -> ExhaustedMessage:
    epoch = row.epoch
    if row.exhausted < 2:  # noqa: PLR2004 - 2 is `dying` in the schema
        reason = None if row.serves else row.reason
        tx.execute(SQL["doom"], (reason, scope.number, row.queue))
        epoch += 1 + row.leap
        row = row._replace(reason=reason)
    return ExhaustedMessage(
        _lease(scope, row, epoch),
        row.attempts,
        instant(row.first_at),
        instant(min(row.leased_until, tx.now_ms)),
        row.reason or "the lease ended without an answer",
        is_lease_expired=bool(row.serves),
    )


def choose(tx: Transaction, scope: Scope, closed: frozenset[str]) -> Row | None:
    oldest = _first(tx, scope, "oldest_free", closed)
    if oldest is None:
        return None
    row = Row(*oldest)
    if row.waiting_since + AGEING // _MS <= tx.now_ms:
        return row
    return Row(*_first(tx, scope, "fullest_free", closed))


def _first(tx: Transaction, scope: Scope, question: str, closed: frozenset[str]) -> Any:
    if not closed:
        return tx.one(SQL[question], (scope.number,))
    return tx.one(SQL[f"{question}_open"], (scope.number, _listed(closed)))


def _listed(closed: frozenset[str]) -> str:
    return json.dumps(sorted(closed))


def grant(
    tx: Transaction, scope: Scope, request: AcquireRequest, row: Row
) -> tuple[Grant | None, Sequence[OffsetRange]]:
    """Lock a queue; the grant (None: no tokens) and what retention had taken."""
    group = request.group
    expired = max(row.head_min - row.committed, 0)
    committed = row.committed + expired
    attempts = 1 if expired else row.attempts + 1
    most = batch_size(request.max_count, attempts, group.max_attempts)
    most = min(most, row.head_max - committed)
    if group.rate_limit is not None:
        most = take_tokens(tx, group, most)
        if not most:
            return None, ()
    until = tx.now_ms + request.visibility // _MS
    free_at = until + group.backoff.delay(attempts, _DICE) // _MS
    tx.execute(
        SQL["grant"],
        (
            committed,
            committed + most,
            tx.now_ms,
            until,
            free_at,
            request.attempt,
            None if request.attempt is None else request.fingerprint,
            attempts,
            int(attempts >= group.max_attempts),
            row.first_at if attempts > 1 else tx.now_ms,
            tx.now_ms,
            request.polled_by,
            expired,
            scope.number,
            row.queue,
        ),
    )
    lease = Lease(
        scope.group, scope.client, row.queue, committed, committed + most, row.epoch + 1 + row.leap, scope.incarnation
    )
    # Whatever else ends a batch leaves it with no serves.
    lease_expired = max(row.batch_next - committed, 0) if row.serves else 0
    lost = (OffsetRange(row.queue, row.committed, committed),) if expired else ()
    return Grant(lease, attempts, instant(tx.now_ms), instant(until), lease_expired=lease_expired), lost


def skip_emptied(tx: Transaction, scope: Scope, closed: frozenset[str]) -> list[OffsetRange]:
    """Queues that retention has emptied: nothing there will ever be granted, so it is told now."""
    rows = [Row(*found) for found in tx.all(SQL["emptied"], (scope.number,))]
    lost = [OffsetRange(row.queue, row.committed, row.head_min) for row in rows if row.queue not in closed]
    for span in lost:
        tx.execute(SQL["skip"], (scope.number, span.queue))
    return lost


def why_empty(tx: Transaction, scope: Scope) -> ReceiveState:
    return ReceiveState.BUSY if tx.one(SQL["has_backlog"], (scope.number,))[0] else ReceiveState.OK


def next_at(
    tx: Transaction, scope: Scope, group: Group, state: ReceiveState, closed: frozenset[str]
) -> datetime | None:
    """When a queue becomes free, or tokens come, by time alone."""
    at = next_token_at(tx, group) if state is ReceiveState.RATE_LIMITED else _first(tx, scope, "next_free", closed)[0]
    return None if at is None else instant(max(at, tx.now_ms))


def settle(tx: Transaction, group: Group, settlement: Settlement) -> SettlementResult:
    lease = settlement.lease
    scope = scope_of(tx, group, lease.client, is_contact=True)
    found = scope and tx.one(SQL["queue"], (scope.number, lease.queue))
    if scope is None or found is None:
        return SettlementResult(SettlementOutcome.GONE)
    row = Row(*found)
    spent = tx.one(SQL["spent_by"], (scope.number, lease.queue, lease.epoch))
    ends = row.head_min, row.committed, instant(row.leased_until)
    standing = QueueLeaseState(scope.incarnation, row.epoch, row.swept_epoch, *ends)
    outcome = decide_outcome(settlement.verb, lease, standing, Verb(spent[0]) if spent else None, instant(tx.now_ms))
    if not outcome.is_new:
        return SettlementResult(outcome)
    if settlement.verb is Verb.EXTEND:
        return _extend(tx, scope, group, row, settlement, outcome)
    tx.execute(SQL["spend"], (scope.number, lease.queue, lease.epoch, settlement.verb, tx.now_ms))
    if settlement.verb is Verb.ACK:
        after = lease.next if settlement.through is None else settlement.through + 1
        tx.execute(SQL["commit"], (after, tx.now_ms, tx.now_ms, scope.number, lease.queue))
        return SettlementResult(outcome)
    return _nack(tx, scope, group, row, settlement, outcome)


def _nack(
    tx: Transaction, scope: Scope, group: Group, row: Row, settlement: Settlement, outcome: SettlementOutcome
) -> SettlementResult:
    reason = settlement.reason or "nacked"
    is_dead = row.attempts >= group.max_attempts and group.on_poison is OnPoison.DEAD
    delay = settlement.delay
    if delay is None:
        delay = group.backoff.delay(row.attempts, _DICE)
    free_at = tx.now_ms if is_dead else tx.now_ms + delay // _MS
    tx.execute(SQL["release"], (tx.now_ms, int(free_at > tx.now_ms), free_at, reason, scope.number, row.queue))
    if is_dead:
        row = row._replace(reason=reason, leased_until=tx.now_ms, serves=0)
        return SettlementResult(outcome, exhausted=_doom(tx, scope, row))
    return SettlementResult(outcome)


def _extend(
    tx: Transaction, scope: Scope, group: Group, row: Row, settlement: Settlement, outcome: SettlementOutcome
) -> SettlementResult:
    until = tx.now_ms + (settlement.visibility or group.visibility) // _MS
    if until > row.granted_at + MAX_HOLD // _MS:
        limit = MAX_HOLD.total_seconds()
        error = InvalidValue(
            "a lease is held for 12 hours in all at most: ack or nack it", field="visibility", limit=limit
        )
        return SettlementResult(SettlementOutcome.INVALID, error=error)
    free_at = until + group.backoff.delay(row.attempts, _DICE) // _MS
    tx.execute(SQL["renew"], (until, free_at, scope.number, row.queue))
    return SettlementResult(outcome, leased_until=instant(until))


def place(tx: Transaction, group: Group, placement: PullReport) -> frozenset[int]:
    grant, after, _ = placement
    lease = grant.lease
    found = current(tx, group, lease, is_contact=True)
    if found is None or tx.one(SQL["spent_by"], (found[0].number, lease.queue, lease.epoch)) is not None:
        return frozenset()
    scope, row = found
    if after == lease.start and grant.serve <= row.serves:
        returned = mark_serve_returned(row.returned, grant.serve)
        tx.execute(SQL["return"], (returned, scope.number, row.queue))
        if all_serves_returned(returned, row.serves):
            refund(tx, group, row.batch_next - after)
            tx.execute(SQL["take_back"], (tx.now_ms, scope.number, row.queue))
    elif after > lease.start and row.batch_next == lease.next and row.serves == grant.serve:
        refund(tx, group, lease.next - after)
        tx.execute(SQL["shorten"], (after, scope.number, row.queue))
        return frozenset(range(lease.start, after))
    return frozenset()


def settle_dead(tx: Transaction, group: Group, exhausted: ExhaustedMessage, *, is_expired: bool) -> bool:
    found = current(tx, group, exhausted.lease)
    if found is None:
        return False
    scope, row = found
    tx.execute(SQL["commit"], (row.committed + 1, tx.now_ms, tx.now_ms, scope.number, row.queue))
    if is_expired:
        tx.execute(SQL["expire"], (scope.number, row.queue))
    return True


def seek(
    tx: Transaction,
    scope: Scope,
    targets: Mapping[str, int],
    bounds: Mapping[str, QueueBounds],
    last_append_ms: Mapping[str, int],
    *,
    is_dry_run: bool,
) -> list[SeekResult]:
    _, unknown_queues = see_heads(tx, scope, bounds, last_append_ms)
    open_queues(tx, scope.number, {queue: bounds[queue].min for queue in unknown_queues}, bounds)
    rows = {row[0]: Row(*row) for row in tx.all(SQL["queues"], (scope.number,))}
    moves = [SeekResult(queue, rows[queue].committed, to) for queue, to in targets.items() if queue in rows]
    if not is_dry_run:
        for move in moves:
            tx.execute(SQL["move"], (move.new, tx.now_ms, tx.now_ms, scope.number, move.queue))
    return moves


def positions(
    tx: Transaction, scope: Scope, group: Group, bounds: Mapping[str, QueueBounds], last_append_ms: Mapping[str, int]
) -> tuple[list[Position], list[ExhaustedMessage]]:
    see_heads(tx, scope, bounds, last_append_ms)
    exhausted = free_and_doom(tx, scope, group)
    for row in map(Row._make, tx.all(SQL["all_free"], (scope.number,))):
        if is_overdrawn(row, group):
            exhausted += _exhaust(tx, scope, group, row)
    return [_position(Row(*row), tx.now_ms) for row in tx.all(SQL["queues"], (scope.number,))], exhausted


def _position(row: Row, now_ms: int) -> Position:
    is_leased = bool(row.held) and now_ms < row.leased_until
    first = max(row.committed, row.head_min)
    batch = max(row.batch_next - first, 0) if row.held else 0
    return Position(
        queue=row.queue,
        min=row.head_min,
        max=row.head_max,
        committed=row.committed,
        cursor=row.batch_next if is_leased else row.committed,
        ready=max(row.head_max - first - batch, 0),
        leased=batch if is_leased else 0,
        waiting=0 if is_leased else batch,
        locked_until=instant(row.leased_until) if is_leased else None,
        last_client=row.last_client,
        last_consumed_at=instant(row.last_consumed_at) if row.last_consumed_at else None,
        attempts=row.attempts,
        is_blocked=bool(row.exhausted) and not row.held,
        expired=row.expired,
        epoch=row.epoch,
    )


def forget(tx: Transaction, scope: int, least: int, before_ms: int, most: int) -> int:
    """Forget old spent receipts; settling one again is `gone` from then on."""
    rows = tx.all(SQL["forgettable"], (scope, before_ms, least, most))
    for number, queue, epoch in rows:
        tx.execute(SQL["forget_settled"], (number,))
        tx.execute(SQL["sweep"], (epoch, scope, queue))
    return len(rows)


def current(tx: Transaction, group: Group, lease: Lease, *, is_contact: bool = False) -> tuple[Scope, Row] | None:
    """The scope and queue of a lease, if nothing has happened to it since it was granted."""
    scope = scope_of(tx, group, lease.client, is_contact=is_contact)
    if scope is None or scope.incarnation != lease.incarnation:
        return None
    row = tx.one(SQL["queue"], (scope.number, lease.queue))
    if row is None or Row(*row).epoch != lease.epoch or Row(*row).committed != lease.start:
        return None
    return scope, Row(*row)
