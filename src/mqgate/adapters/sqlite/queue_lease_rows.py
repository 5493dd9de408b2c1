"""The rows of a lease scope in queue and broadcast mode."""

from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter

from mqgate.adapters.sqlite.engine import queries
from mqgate.adapters.sqlite.lease_writer import Statement
from mqgate.adapters.sqlite.threads import View
from mqgate.core.lease import Verb
from mqgate.core.leases.queue_state import QueueChanges, QueueLease, QueueScope

__all__ = ["forgettable", "load", "load_spent", "statements"]

# The columns have the names of the members, except these.
_COLUMN_OF = {"name": "queue", "revoked_epoch": "swept_epoch", "fingerprint": "attempt_shape"}
_MEMBERS = tuple(member.name for member in fields(QueueLease))
_COLUMNS = ", ".join(_COLUMN_OF.get(name, name) for name in _MEMBERS)
_VALUES = ", ".join("?" * (len(_MEMBERS) + 1))
_SQL = {
    name: sql.replace("{columns}", _COLUMNS).replace("{values}", _VALUES)
    for name, sql in queries("queue_lease_rows").items()
}
_values_of = attrgetter(*_MEMBERS)


def load(view: View, number: int, scope: QueueScope) -> QueueScope:
    """Read the stored state of a scope. Receipts of older epochs are left to `load_spent`."""
    for row in view.all(_SQL["queues"], (number,)):
        scope.add(QueueLease(*row))
    for queue, epoch, verb in view.all(_SQL["spent_now"], (number,)):
        scope.spent[queue, epoch] = Verb(verb)
    return scope


def load_spent(view: View, number: int, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Verb]:
    """Read which of these older receipts were spent, and by which verb."""
    found = {}
    for queue, epoch in keys:
        row = view.one(_SQL["spent_by"], (number, queue, epoch))
        if row is not None:
            found[queue, epoch] = Verb(row[0])
    return found


def forgettable(view: View, number: int, min_kept: int, before_ms: int, limit: int) -> list[tuple[int, str, int]]:
    """Read the row number, queue and epoch of spent receipts that may be forgotten."""
    return view.all(_SQL["forgettable"], (number, before_ms, min_kept, limit))


def statements(number: int, scope: QueueScope) -> list[Statement]:
    """Take the changes of a scope as statements."""
    changes, scope.changes = scope.changes, QueueChanges()
    queues = scope.queues
    found = [(_SQL["set_queue"], (number, *_values_of(queues[name]))) for name in changes.queues]
    found += [(_SQL["spend"], (number, spent.queue, spent.epoch, spent.verb, spent.at)) for spent in changes.spent]
    found += [(_SQL["forget_spent"], (row,)) for row in changes.forgotten]
    return found
