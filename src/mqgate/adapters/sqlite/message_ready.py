"""Message mode in SQLite: what could be granted now, what must die, and when there will be more.

Queues that the log cannot read now (`book.closed`) are left out by statements of their own (`..._open`): without any,
which is nearly always, the plain ones find their answer at the first entries of an index.
"""

import json
from datetime import datetime
from typing import Any

from mqgate.adapters.sqlite import lease_scope
from mqgate.adapters.sqlite.message_book import SQL, Book, FailedRow, QueueRow
from mqgate.core.lease import ExhaustedMessage, ReceiveState
from mqgate.core.message import instant

_MOST_RANGES = 64
# So many in one step: nobody else is served meanwhile.
MOST_OVERTAKEN = 1_000


def due(book: Book, most: int) -> list[FailedRow]:
    """Messages that are ready again, in the order of their queues."""
    if not book.has_due:
        return []
    return sorted(FailedRow(*row) for row in _ask(book, "due", book.tx.now_ms, most))


def doom_due(book: Book, most: int) -> None:
    """Nothing can be granted now; but of what is ready again that dies which had all its deliveries."""
    for row in due(book, most):
        if book.is_overdrawn(row) and not is_expired(book, row):
            book.doom(row)


def fresh_rows(book: Book) -> list[QueueRow]:
    """Queues with messages that nobody had yet, the least recently served first."""
    return [QueueRow(*row) for row in _ask(book, "fresh", _MOST_RANGES)]


def dying(book: Book) -> list[ExhaustedMessage]:
    """Messages that must die, as far as they can be read for it."""
    rows = [FailedRow(*row) for row in book.tx.all(SQL["dying"], (book.scope.number,))] if book.has_dying else []
    return [book.exhausted(row) for row in rows if row.queue not in book.closed and not is_expired(book, row)]


def overtaken(book: Book) -> list[FailedRow]:
    """Messages that failed, or wait for their key, and that retention took; what is leased is left to its receipt."""
    found: list[FailedRow] = []
    tx, scope = book.tx, book.scope.number
    for queue in map(QueueRow._make, tx.all(SQL["overtaken"], (scope,)) if book.has_overtaken else ()):
        if queue.queue not in book.closed:
            values = scope, queue.queue, queue.head_min, MOST_OVERTAKEN - len(found)
            found += map(FailedRow._make, tx.all(SQL["overtaken_of_queue"], values))
    return found


def is_expired(book: Book, row: FailedRow) -> bool:
    """Whether retention took a message."""
    queue = book.queue(row.queue)
    return queue is None or row.offset < queue.head_min


def next_at(book: Book, state: ReceiveState) -> datetime | None:
    """When something becomes ready by time alone."""
    tx, scope = book.tx, book.scope.number
    # Without tokens, or at the cap, what is ready is no news: who waits would try again at once, and again.
    if state is ReceiveState.RATE_LIMITED:
        times = [lease_scope.next_token_at(tx, book.group)]
    elif state is ReceiveState.IN_FLIGHT_CAP:
        # Of a closed queue as well: a place below the cap is a place.
        times = [tx.one(SQL["next_end"], (scope,))[0]]
    else:
        times = [_ask(book, "next_end")[0][0], _ask(book, "next_ready")[0][0]]
    known = [each for each in times if each is not None]
    return instant(max(min(known), tx.now_ms)) if known else None


def leave_attempt(book: Book, attempt: str) -> None:
    """What the attempt was given in closed queues is no longer its own: it was given something else."""
    book.tx.execute(SQL["leave_attempt"], (book.scope.number, attempt, _listed(book.closed)))


def _ask(book: Book, question: str, *values: int) -> list[Any]:
    if not book.closed:
        return book.tx.all(SQL[question], (book.scope.number, *values))
    return book.tx.all(SQL[f"{question}_open"], (book.scope.number, _listed(book.closed), *values))


def _listed(closed: frozenset[str]) -> str:
    return json.dumps(sorted(closed))
