"""The statistics store: it writes a micro-batch and its number in one transaction.

Each call opens its own connection and is one transaction. Calls are few (several per minute) and come from several
threads, so pooled connections are not needed. Writers are serialized, also in PostgreSQL.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from mqgate.core.errors import StorageRefused
from mqgate.core.message import milliseconds
from mqgate.stats import sql
from mqgate.stats.tables import SCHEMA_VERSION, TABLES, RetentionClass, Table, table_of

__all__ = ["Applied", "Database", "Rows", "StatsStore"]

Row = Sequence[Any]
Rows = Mapping[str, Sequence[Row]]
_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_NEVER = 1 << 62
_KINDS = ("traffic", "latency", "polls")
# The rows of `positions` under this pipeline name store how far retention has deleted minutes and hours.
_TIDY = "tidy"
# Spark repeats the last batch of a checkpoint after a crash, however long the driver was down.
_IS_NOT_NEWEST = (
    "batch < (SELECT max(newer.batch) FROM stats_applied newer"
    " WHERE newer.pipeline = stats_applied.pipeline AND newer.run = stats_applied.run)"
)


class Execute(Protocol):
    """Runs one statement with `?` placeholders, or the same statement once per row."""

    def __call__(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]: ...

    def many(self, statement: str, rows: Iterable[Row]) -> None: ...


class Database(Protocol):
    """A SQLite or PostgreSQL database. A writing transaction excludes other writers."""

    def transaction(self, *, is_writing: bool) -> AbstractContextManager[Execute]: ...


class Applied(NamedTuple):
    """A micro-batch: its pipeline, the id of its checkpoint, and its number."""

    pipeline: str
    run: str
    batch: int


class StatsStore:
    """The store. Opening it for writing creates missing tables. A store of a later schema version is rejected."""

    def __init__(self, database: Database, *, is_writing: bool) -> None:
        self._database = database
        if is_writing:
            with database.transaction(is_writing=False) as execute:
                for statement in sql.create():
                    execute(statement)
                if not execute("SELECT number FROM stats_layout"):
                    execute("INSERT INTO stats_layout VALUES (?)", (SCHEMA_VERSION,))
                if not execute(sql.query("positions"), (_TIDY,)):
                    _record_tidied(execute, RetentionClass.MINUTES, _oldest_whole_day(execute))
        with database.transaction(is_writing=False) as execute:
            _check_schema_version(execute)

    def apply(
        self,
        applied: Applied,
        rows: Rows,
        *,
        now: datetime,
        oldest: int | None = None,
        after: Sequence[Row] | None = None,
    ) -> bool:
        """Merge the rows of a micro-batch once. Return False, without a change, if they are already applied.

        Without `after`, the number of the batch decides. Otherwise the stored positions of the pipeline must still be
        equal to `after`.
        """
        with self._writing() as execute:
            is_known = bool(execute(sql.query("is_applied"), applied))
            positions = execute(sql.query("positions"), (applied.pipeline,))
            if is_known if after is None else set(positions) != set(map(tuple, after)):
                return False
            if is_known:
                # The record that is replaced below may contain the oldest minute to roll up.
                _roll_up_changed(execute, None)
            _put(execute, rows)
            _add_to_tidied(execute, rows)
            row = (*applied, milliseconds(now), oldest, int(oldest is None))
            _put(execute, {"applied": [row]})
        return True

    def is_applied(self, applied: Applied) -> bool:
        return bool(self.read("is_applied", *applied))

    def put(self, rows: Rows) -> None:
        """Merge rows. The call may be repeated."""
        with self._writing() as execute:
            _put(execute, rows)

    def replace(self, name: str, rows: Sequence[Row], **within: Any) -> None:
        """Replace all rows whose columns are equal to `within`."""
        with self._writing() as execute:
            _replace(execute, table_of(name), rows, within)

    def replace_minutes(self, since: int, until: int, rows: Rows, *, after: int) -> bool:
        """Replace the minutes of [since, until). Return False if a batch applied since `after` changed them.

        Hours and days are recomputed in the same transaction. If the minutes are already deleted by retention, an hour
        that the range covers only in part is kept.
        """
        with self._writing() as execute:
            if execute(sql.query("changed_since"), (after, until)):
                return False
            for name in rows:
                execute(f"DELETE FROM {table_of(name).sql_name} WHERE at >= ? AND at < ?", (since, until))  # noqa: S608 - our own names
            _put(execute, rows)
            tidied = _tidied(execute, RetentionClass.MINUTES)
            _roll_up(execute, max(since, tidied), until)
            _roll_up(execute, since + -since % _HOUR_MS, min(until - until % _HOUR_MS, tidied))
        return True

    def roll_up(self, since: int | None = None) -> int:
        """Recompute hours and days from changed minutes, or since an instant. Return the number of hours checked."""
        with self._writing() as execute:
            return _roll_up_changed(execute, since)

    def tidy(self, now: datetime, kept: Mapping[RetentionClass, timedelta]) -> dict[str, int]:
        """Delete rows older than the retention of their table. Return the number of deleted rows per table.

        Minutes and hours are deleted by whole days, because roll-ups need complete days.
        """
        deleted = {}
        with self._writing() as execute:
            _roll_up_changed(execute, None)
            for table in TABLES.values():
                if table.retention not in kept:
                    continue
                until = milliseconds(now - kept[table.retention])
                if table.retention in {RetentionClass.MINUTES, RetentionClass.HOURS}:
                    until -= until % _DAY_MS
                    _record_tidied(execute, table.retention, until)
                where = f"at < ? AND {_IS_NOT_NEWEST}" if table.name == "applied" else "at < ?"
                ((count,),) = execute(f"SELECT count(*) FROM {table.sql_name} WHERE {where}", (until,))  # noqa: S608 - our own names
                if count:
                    execute(f"DELETE FROM {table.sql_name} WHERE {where}", (until,))  # noqa: S608 - our own names
                    deleted[table.name] = count
        return deleted

    def read(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of queries/."""
        with self._database.transaction(is_writing=False) as execute:
            return execute(sql.query(name), values)

    def select(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        with self._database.transaction(is_writing=False) as execute:
            return execute(statement, values)

    @contextmanager
    def _writing(self) -> Iterator[Execute]:
        with self._database.transaction(is_writing=True) as execute:
            yield execute


def _check_schema_version(execute: Execute) -> None:
    ((found,),) = execute("SELECT number FROM stats_layout")
    if found > SCHEMA_VERSION:
        raise StorageRefused(
            f"the statistics have schema version {found}, this mqgate supports {SCHEMA_VERSION}: use the newer mqgate"
            " that wrote them"
        )


def _put(execute: Execute, rows: Rows) -> None:
    for name, found in rows.items():
        if found:
            execute.many(sql.insert(table_of(name)), found)


def _replace(execute: Execute, table: Table, rows: Sequence[Row], within: Mapping[str, Any]) -> None:
    where = " AND ".join(f'"{column}" = ?' for column in within) or "1 = 1"
    execute(f"DELETE FROM {table.sql_name} WHERE {where}", tuple(within.values()))  # noqa: S608 - our own names
    _put(execute, {table.name: rows})


def _tidied(execute: Execute, retention: RetentionClass) -> int:
    """Return the instant before which retention deleted minutes or hours, so that sums cannot be recomputed."""
    found = execute(sql.query("positions"), (_TIDY,))
    return next((until for _, name, until in found if name == retention.value), 0)


def _oldest_whole_day(execute: Execute) -> int:
    """Return the value of `_tidied` for a store that never recorded it: some hours may have no minutes."""
    ((hour,),) = execute("SELECT max(at) FROM stats_traffic_hour")
    if hour is None:
        return 0
    ((minute,),) = execute("SELECT min(at) FROM stats_traffic_minute")
    found = hour + _DAY_MS if minute is None else minute
    return int(found - found % _DAY_MS)


def _record_tidied(execute: Execute, retention: RetentionClass, until: int) -> None:
    _put(execute, {"positions": [(_TIDY, "", retention.value, max(until, _tidied(execute, retention)))]})


def _add_to_tidied(execute: Execute, rows: Rows) -> None:
    """Add late minutes, whose minutes were deleted by retention, to their hours and days."""
    tidied = _tidied(execute, RetentionClass.MINUTES)
    for kind in _KINDS:
        late = [row for row in rows.get(f"{kind}_minute", ()) if row[0] < tidied]
        for step, width in (("hour", _HOUR_MS), ("day", _DAY_MS)):
            _put(execute, {f"{kind}_{step}": [(row[0] - row[0] % width, *row[1:]) for row in late]})


def _roll_up_changed(execute: Execute, since: int | None) -> int:
    ((last,),) = execute("SELECT max(at) FROM stats_traffic_minute")
    if since is None:
        ((since,),) = execute(sql.query("not_rolled_up"))
    if since is None:
        return 0
    first = max(since, _tidied(execute, RetentionClass.MINUTES))
    _roll_up(execute, first, _NEVER)
    execute("UPDATE stats_applied SET is_rolled_up = 1 WHERE is_rolled_up = 0")
    return max(0, (max(last or since, since) - first) // _HOUR_MS + 1)


def _roll_up(execute: Execute, since: int, until: int) -> None:
    """Recompute the hours of [since, until), and the days of which all hours are kept."""
    if since >= until:
        return
    for kind in _KINDS:
        _roll(execute, f"{kind}_minute", f"{kind}_hour", since, until, _HOUR_MS)
        _roll(
            execute, f"{kind}_hour", f"{kind}_day", max(since, _tidied(execute, RetentionClass.HOURS)), until, _DAY_MS
        )


def _roll(execute: Execute, source: str, target: str, since: int, until: int, width: int) -> None:
    """Recompute the sums of all steps that overlap [since, until) from the finer table."""
    fine, coarse = table_of(source), table_of(target)
    span = (since - since % width, until + -until % width)
    kept = sql.quoted(*coarse.keys[1:])
    sums = ", ".join(f'sum("{column}")' for column in coarse.values)
    execute(f"DELETE FROM {coarse.sql_name} WHERE at >= ? AND at < ?", span)  # noqa: S608 - our own names
    step = f"at - at % {width}"
    execute(
        f"INSERT INTO {coarse.sql_name} ({sql.quoted(*coarse.columns)})"  # noqa: S608 - our own names
        f" SELECT {step}, {kept}, {sums} FROM {fine.sql_name} WHERE at >= ? AND at < ? GROUP BY {step}, {kept}",
        span,
    )
