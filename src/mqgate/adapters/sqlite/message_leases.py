"""Message mode in SQLite: the steps of receive, place and seek on a scope's book."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from mqgate.adapters.sqlite import lease_scope
from mqgate.adapters.sqlite.lease_scope import Scope
from mqgate.adapters.sqlite.message_book import SQL, Book, FailedRow, Granted, QueueRow, granted
from mqgate.adapters.sqlite.message_ready import (
    doom_due,
    due,
    dying,
    fresh_rows,
    is_expired,
    leave_attempt,
    next_at,
    overtaken,
)
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.entries import Group
from mqgate.core.errors import AttemptMismatch
from mqgate.core.lease import (
    MAX_SPAN,
    AcquireRequest,
    AcquireResult,
    ExhaustedMessage,
    Grant,
    Lease,
    OffsetRange,
    Position,
    PullReport,
    QueueBounds,
    ReceiveState,
    SeekResult,
    Settlement,
    SettlementResult,
    all_serves_returned,
    mark_serve_returned,
)
from mqgate.core.message import instant

_MS = timedelta(milliseconds=1)
_PLACING = timedelta(seconds=10)


def open_queues(tx: Transaction, scope: int, starts: Mapping[str, int], bounds: Mapping[str, QueueBounds]) -> None:
    """Add queues; those that are there stay where they are."""
    for queue, start in starts.items():
        head = bounds[queue]
        tx.execute(SQL["add_queue"], (scope, queue, head.min, head.max, start, tx.now_ms))


def acquire(tx: Transaction, scope: Scope, request: AcquireRequest) -> AcquireResult:
    group = request.group
    book = Book(tx, scope, group, request.closed)
    settled = [book.settle(each) for each in request.settlements]
    # Before any answer: ends of queues are told once.
    rewound, unknown_queues = see_heads(book, request.bounds)
    unknown_queues = [queue for queue in unknown_queues if queue not in request.closed]
    if unknown_queues:
        _of_attempt(book, request)
        book.close()
        return AcquireResult(
            state_exists=True, settled=settled, rewound=rewound, exhausted=dying(book), unknown_queues=unknown_queues
        )
    _end_leases(book)
    book.flush()
    if request.attempt is not None:
        same = _replay(book, request)
        if same:
            book.close()
            return AcquireResult(
                state_exists=True, settled=settled, grants=same, rewound=rewound, exhausted=dying(book)
            )
    if group.is_paused:
        doom_due(book, request.max_count)
        book.close()
        return AcquireResult(
            state_exists=True, settled=settled, state=ReceiveState.PAUSED, rewound=rewound, exhausted=dying(book)
        )
    grants, state, lost = _grant(book, request)
    if grants and book.closed and request.attempt is not None:
        leave_attempt(book, request.attempt)
    book.close()
    return AcquireResult(
        state_exists=True,
        settled=settled,
        grants=grants,
        state=state,
        lost=lost,
        rewound=rewound,
        exhausted=dying(book),
        next_at=None if grants and not request.has_other_waiters else next_at(book, state),
        is_span_full=state is ReceiveState.BUSY and any(not row.placing for row in fresh_rows(book)),
        has_more=bool(grants) and request.has_other_waiters and bool(fresh_rows(book) or due(book, 1)),
    )


def see_heads(book: Book, bounds: Mapping[str, QueueBounds]) -> tuple[int, list[str]]:
    """Take note of queues' ends: how far queues went back that came again shorter, and those that are not known."""
    rewound = 0
    unknown_queues = []
    tx, scope = book.tx, book.scope.number
    for queue, head in bounds.items():
        seen = tx.one(SQL["see_head"], (head.min, head.max, scope, queue))
        if seen is None:
            unknown_queues.append(queue)
        elif seen[0] > head.max:
            rewound += seen[0] - head.min
            move(book, queue, head.min)
    return rewound, unknown_queues


def move(book: Book, queue: str, to: int) -> None:
    """Put a queue elsewhere; whatever was leased or waiting there is swept away."""
    tx, scope = book.tx, book.scope.number
    for row in tx.all(SQL["open_grants_of_queue"], (scope, queue)):
        grant = book.keep(granted(row))
        book.in_flight -= grant.open.bit_count()
        grant.open = 0
    tx.execute(SQL["clear_grants"], (tx.now_ms, scope, queue))
    tx.execute(SQL["clear_failed"], (scope, queue))
    tx.execute(SQL["clear_order"], (scope, queue))
    tx.execute(SQL["move"], (to, book.epoch, tx.now_ms, scope, queue))


def _of_attempt(book: Book, request: AcquireRequest) -> list[Granted] | None:
    """The grants that the same attempt was given; None if something of them was touched, or has ended."""
    rows = [book.keep(granted(row)) for row in book.tx.all(SQL["by_attempt"], (book.scope.number, request.attempt))]
    if any(grant.is_touched or (grant.open and grant.until <= book.tx.now_ms) for grant in rows):
        return None
    rows = [grant for grant in rows if grant.given]
    if any(grant.shape != request.fingerprint for grant in rows):
        raise AttemptMismatch("use a new attemptId when max or visibility change", attemptId=request.attempt)
    return rows


def _replay(book: Book, request: AcquireRequest) -> list[Grant]:
    """The leases that the same attempt was given, while they are untouched; of those, what can be read."""
    rows = _of_attempt(book, request)
    if rows is None:
        # From here on the attempt means what it is given next.
        book.tx.execute(SQL["forget_attempt"], (book.scope.number, request.attempt))
        return []
    if book.closed:
        rows = [grant for grant in rows if grant.queue not in book.closed]
    for grant in rows:
        grant.serves += 1
        grant.is_changed = True
    return [_grant_of(book, grant) for grant in rows]


def _grant_of(book: Book, grant: Granted) -> Grant:
    scope = book.scope
    after = grant.start + grant.given.bit_length()
    lease = Lease(scope.group, "", grant.queue, grant.start, after, grant.epoch, scope.incarnation)
    return Grant(lease, grant.delivery, instant(grant.granted_at), instant(grant.until), grant.serves)


def _end_leases(book: Book) -> None:
    # First those whose keys nobody knows: as failed messages they would come again out of turn.
    _take_back_unplaced(book)
    found = book.tx.one(SQL["look"], (book.scope.number, book.tx.now_ms))
    has_ended, book.has_due, book.has_dying, book.has_overtaken = found
    if has_ended:
        book.expire_ended()


def _take_back_unplaced(book: Book) -> None:
    """An ordered range whose gateway died before it could say the keys: as if it had not been granted."""
    tx, scope = book.tx, book.scope.number
    if not book.group.is_ordered:
        return
    for row in tx.all(SQL["unplaced"], (scope,)):
        queue = QueueRow(*row)
        grant = book.grant(queue.placing)
        if grant is not None and min(grant.until, grant.granted_at + _PLACING // _MS) <= tx.now_ms:
            for number in list(grant.open_numbers()):
                book.shut(grant, number)
                tx.execute(SQL["unfail"], (scope, queue.queue, grant.start + number))
            tx.execute(SQL["roll_back"], (grant.start, scope, queue.queue))


def _grant(book: Book, request: AcquireRequest) -> tuple[list[Grant], ReceiveState, list[OffsetRange]]:
    group = request.group
    room = min(request.max_count, group.max_in_flight - book.in_flight)
    if room <= 0:
        doom_due(book, request.max_count)
        return [], ReceiveState.IN_FLIGHT_CAP, []
    lost = _expire(book)
    allowed = room
    if group.rate_limit is not None:
        allowed = lease_scope.take_tokens(book.tx, group, room)
    grants = _redeliver(book, request, allowed)
    left = allowed - sum(grant.lease.next - grant.lease.start for grant in grants)
    fresh, skipped = _fresh(book, request, left)
    grants += fresh
    left -= sum(grant.lease.next - grant.lease.start for grant in fresh)
    lease_scope.refund(book.tx, group, left)
    lost += skipped
    if grants:
        return grants, ReceiveState.OK, lost
    lost += _skip_emptied(book) if allowed else []
    # What expired is settled: it may have been all there was.
    book.flush()
    if not book.tx.one(SQL["has_backlog"], (book.scope.number,))[0]:
        return [], ReceiveState.OK, lost
    state = ReceiveState.BUSY
    if not allowed:
        doom_due(book, request.max_count)
        state = ReceiveState.RATE_LIMITED if fresh_rows(book) or due(book, 1) else ReceiveState.BUSY
    return [], state, lost


def _expire(book: Book) -> list[OffsetRange]:
    """What retention took of messages that were granted before, and that nobody holds: settled, and told now."""
    tx, scope = book.tx, book.scope.number
    lost = []
    for row in overtaken(book):
        book.finish(row.queue, row.offset)
        tx.execute(SQL["expire"], (1, scope, row.queue))
        lost.append(OffsetRange(row.queue, row.offset, row.offset + 1))
    book.flush()
    return lost


def _redeliver(book: Book, request: AcquireRequest, most: int) -> list[Grant]:
    """Grant what is ready again; neighbours that failed as often, and alike, become one range."""
    runs: list[list[FailedRow]] = []
    tx, scope = book.tx, book.scope.number
    for row in due(book, most) if most else ():
        if is_expired(book, row):
            continue
        if book.is_overdrawn(row):
            book.doom(row)
            continue
        last = runs[-1][-1] if runs else None
        alike = row.queue, row.offset, row.delivery, row.lapsed
        if last and (last.queue, last.offset + 1, last.delivery, last.lapsed) == alike:
            runs[-1].append(row)
        else:
            runs.append([row])
    grants = []
    for run in runs:
        grant = _add(book, request, run[0].queue, run[0].offset, len(run), delivery=run[0].delivery + 1, is_again=True)
        for row in run:
            tx.execute(SQL["regrant"], (grant.lease.epoch, grant.delivery, tx.now_ms, scope, row.queue, row.offset))
        grants.append(grant._replace(lease_expired=len(run) if run[0].lapsed else 0))
    return grants


def _fresh(book: Book, request: AcquireRequest, most: int) -> tuple[list[Grant], list[OffsetRange]]:
    """Grant what nobody had yet: queues in turn, the least recently served first."""
    grants: list[Grant] = []
    lost: list[OffsetRange] = []
    for row in fresh_rows(book) if most else ():
        if row.placing:
            continue
        skipped = max(row.head_min - row.cursor, 0)
        cursor = row.cursor + skipped
        committed = row.committed if row.committed < row.cursor else cursor
        count = min(most, row.head_max - cursor, committed + MAX_SPAN - cursor)
        if count <= 0:
            continue
        grant = _add(book, request, row.queue, cursor, count)
        placing = grant.lease.epoch if request.group.is_ordered else 0
        book.tx.execute(
            SQL["advance"],
            (
                cursor + count,
                committed,
                placing,
                book.tx.now_ms,
                request.polled_by,
                skipped,
                book.scope.number,
                row.queue,
            ),
        )
        if skipped:
            lost.append(OffsetRange(row.queue, row.cursor, cursor))
        grants.append(grant)
        most -= count
        if not most:
            break
    return grants, lost


def _skip_emptied(book: Book) -> list[OffsetRange]:
    """Queues that retention has emptied: nothing new there will ever be granted, so it is told now."""
    lost: list[OffsetRange] = []
    for found in book.tx.all(SQL["emptied"], (book.scope.number,)):
        row = QueueRow(*found)
        if row.queue not in book.closed:
            lost.append(OffsetRange(row.queue, row.cursor, row.head_min))
            committed = row.committed if row.committed < row.cursor else row.head_min
            book.tx.execute(SQL["skip"], (committed, book.scope.number, row.queue))
    return lost


def _add(
    book: Book,
    request: AcquireRequest,
    queue: str,
    start: int,
    count: int,
    *,
    delivery: int = 1,
    is_again: bool = False,
) -> Grant:
    tx, scope = book.tx, book.scope
    book.epoch += 1
    book.in_flight += count
    until = tx.now_ms + request.visibility // _MS
    shape = None if request.attempt is None else request.fingerprint
    tx.execute(
        SQL["add_grant"],
        (
            scope.number,
            book.epoch,
            queue,
            start,
            delivery,
            tx.now_ms,
            until,
            f"{(1 << count) - 1:x}",
            request.attempt,
            shape,
            request.polled_by,
            int(is_again),
        ),
    )
    lease = Lease(scope.group, "", queue, start, start + count, book.epoch, scope.incarnation)
    return Grant(lease, delivery, instant(tx.now_ms), instant(until))


def settle(tx: Transaction, scope: Scope, group: Group, settlements: Sequence[Settlement]) -> list[SettlementResult]:
    book = Book(tx, scope, group)
    settled = [book.settle(each) for each in settlements]
    book.close()
    return settled


def place(tx: Transaction, scope: Scope, group: Group, placements: Sequence[PullReport]) -> list[frozenset[int]]:
    book = Book(tx, scope, group)
    placed = [_place(book, each) for each in placements]
    book.close()
    return placed


def _place(book: Book, placement: PullReport) -> frozenset[int]:
    given, after, kept = placement
    tx, scope = book.tx, book.scope.number
    grant = book.grant(given.lease.epoch)
    if grant is None or given.serve > grant.serves or given.lease.incarnation != book.scope.incarnation:
        return frozenset()
    if given.serve < grant.serves or after <= grant.start:
        # Nobody took it; or the last who was served it places it, and this answer is left without.
        grant.returned = mark_serve_returned(grant.returned, given.serve)
        grant.is_changed = True
        if not all_serves_returned(grant.returned, grant.serves):
            return frozenset()
        after = grant.start
    before = grant.open.bit_count()
    _give_back(book, grant, after)
    for number in list(grant.open_numbers()):
        offset = grant.start + number
        if kept is not None and offset not in kept:
            book.shut(grant, number)
            book.finish(grant.queue, offset)
        elif kept is not None and book.group.is_ordered:
            _keep_order(book, grant, number, kept[offset])
    tx.execute(SQL["placed"], (scope, grant.queue, grant.epoch))
    lease_scope.refund(tx, book.group, before - grant.open.bit_count())
    grant.given = grant.open
    grant.is_changed = True
    if grant.shape is not None and not grant.given | grant.acked | grant.nacked:
        # Nothing of it is the attempt's; an attempt that finds nothing would look at all such grants at each step.
        tx.execute(SQL["leave_emptied"], (scope, grant.epoch))
    return frozenset(grant.start + number for number in grant.open_numbers())


def _give_back(book: Book, grant: Granted, after: int) -> None:
    """What lies behind `after` was not delivered: ready at once, uncounted."""
    tx, scope = book.tx, book.scope.number
    is_tail = _is_tail(book, grant)
    end = grant.start + grant.open.bit_length()
    for number in list(grant.open_numbers()):
        offset = grant.start + number
        if offset < after:
            continue
        book.shut(grant, number)
        if is_tail:
            continue
        values = (scope, grant.queue, offset, grant.epoch, grant.delivery - 1, tx.now_ms, 0)
        tx.execute(SQL["fail"], (*values, grant.granted_at, tx.now_ms, None, 0))
    if is_tail and after < end:
        cursor = max(after, grant.start)
        tx.execute(SQL["roll_back"], (cursor, scope, grant.queue))
        tx.execute(SQL["clear_order_from"], (scope, grant.queue, cursor))


def _is_tail(book: Book, grant: Granted) -> bool:
    """Whether a new range is untouched and the last one granted: then the cursor can simply go back."""
    queue = book.queue(grant.queue)
    count = grant.given.bit_length()
    if queue is None or grant.delivery != 1 or queue.cursor != grant.start + count:
        return False
    if not grant.open == grant.given == (1 << count) - 1:
        return False
    # A message that has a row of its own is granted by that row, never by the cursor as well.
    return not book.tx.one(SQL["any_failed"], (book.scope.number, grant.queue, grant.start, queue.cursor))[0]


def _keep_order(book: Book, grant: Granted, number: int, key: str | None) -> None:
    if key is None:
        return
    tx, scope, offset = book.tx, book.scope.number, grant.start + number
    tx.execute(SQL["order"], (scope, grant.queue, offset, key))
    if tx.one(SQL["is_behind"], (scope, grant.queue, key, offset))[0]:
        book.shut(grant, number)
        values = (scope, grant.queue, offset, grant.epoch, 0, None, 0, grant.granted_at, tx.now_ms, None, 0)
        tx.execute(SQL["fail"], values)


def settle_dead(tx: Transaction, scope: Scope, group: Group, exhausted: ExhaustedMessage, *, is_expired: bool) -> bool:
    book = Book(tx, scope, group)
    row = book.failed(exhausted.lease.queue, exhausted.lease.start)
    if row is None or not row.dying or row.epoch != exhausted.lease.epoch:
        return False
    book.finish(row.queue, row.offset)
    if is_expired:
        tx.execute(SQL["expire"], (1, scope.number, row.queue))
    book.close()
    return True


def seek(
    tx: Transaction,
    scope: Scope,
    group: Group,
    targets: Mapping[str, int],
    bounds: Mapping[str, QueueBounds],
    *,
    is_dry_run: bool,
) -> list[SeekResult]:
    book = Book(tx, scope, group)
    _, unknown_queues = see_heads(book, bounds)
    open_queues(tx, scope.number, {queue: bounds[queue].min for queue in unknown_queues}, bounds)
    rows = {row[0]: QueueRow(*row) for row in tx.all(SQL["queues"], (scope.number,))}
    moves = [_moved(book, rows[queue], to) for queue, to in targets.items() if queue in rows]
    if not is_dry_run:
        for each in moves:
            move(book, each.queue, each.new)
    book.close()
    return moves


def _moved(book: Book, row: QueueRow, to: int) -> SeekResult:
    tx, scope = book.tx, book.scope.number
    unsettled: set[int] = {offset for (offset,) in tx.all(SQL["failed_of_queue"], (scope, row.queue))}
    for grant in map(granted, tx.all(SQL["open_grants_of_queue"], (scope, row.queue))):
        unsettled.update(grant.start + number for number in grant.open_numbers())

    def done(low: int, high: int) -> int:
        return max(high - low, 0) - sum(low <= each < high for each in unsettled)

    behind = done(max(row.committed, to), row.cursor)
    return SeekResult(row.queue, row.committed, to, done(row.committed, min(to, row.cursor)), behind)


def positions(
    tx: Transaction, scope: Scope, group: Group, bounds: Mapping[str, QueueBounds]
) -> tuple[list[Position], list[ExhaustedMessage]]:
    book = Book(tx, scope, group)
    see_heads(book, bounds)
    _end_leases(book)
    book.close()
    leased: dict[str, int] = {}
    for row in tx.all(SQL["open_grants"], (scope.number,)):
        grant = granted(row)
        leased[grant.queue] = leased.get(grant.queue, 0) + grant.open.bit_count()
    rows = {row[0]: QueueRow(*row) for row in tx.all(SQL["queues"], (scope.number,))}
    waiting: dict[str, int] = {}
    ready: dict[str, int] = {}
    for row in tx.all(SQL["all_failed"], (scope.number,)):
        failed = FailedRow(*row)
        kept = book.grant(failed.epoch)
        if kept is not None and kept.queue == failed.queue and _is_open(kept, failed.offset):
            continue
        if failed.offset < rows[failed.queue].head_min:
            # Retention took it, and the next receive tells so.
            continue
        is_ready = failed.ready_at is not None and failed.ready_at <= tx.now_ms
        if is_ready and book.is_overdrawn(failed):
            book.doom(failed)
            is_ready = False
        counts = ready if is_ready else waiting
        counts[failed.queue] = counts.get(failed.queue, 0) + 1
    found = [
        _position(row, leased.get(queue, 0), waiting.get(queue, 0), ready.get(queue, 0)) for queue, row in rows.items()
    ]
    return found, dying(book)


def _is_open(grant: Granted, offset: int) -> bool:
    return offset >= grant.start and bool(grant.open >> (offset - grant.start) & 1)


def _position(row: QueueRow, leased: int, waiting: int, ready: int) -> Position:
    return Position(
        queue=row.queue,
        min=row.head_min,
        max=row.head_max,
        committed=row.committed,
        cursor=row.cursor,
        ready=ready + max(row.head_max - max(row.cursor, row.head_min), 0),
        leased=leased,
        waiting=waiting,
        locked_until=None,
        last_client=row.last_client,
        last_consumed_at=instant(row.last_consumed_at) if row.last_consumed_at else None,
        attempts=0,
        is_blocked=False,
        expired=row.expired,
        epoch=row.placing,
    )


def holders(tx: Transaction, scope: int) -> list[tuple[str, str]]:
    """Who holds a message of which queue. A grant's end is that of its first message: others were extended beyond."""
    grants = map(granted, tx.all(SQL["held_grants"], (scope, tx.now_ms)))
    return [
        (grant.client, grant.queue)
        for grant in grants
        if any(grant.end_of(number) > tx.now_ms for number in grant.open_numbers())
    ]


def forget(tx: Transaction, scope: int, least: int, before_ms: int, most: int) -> int:
    """Forget old grants; settling one of their receipts is `gone` from then on."""
    epoch = tx.one(SQL["epoch"], (scope,))[0]
    tx.execute(SQL["forget_grants"], (scope, epoch - least, before_ms, most))
    return int(tx.one("SELECT changes()")[0])
