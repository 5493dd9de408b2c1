"""The store: what is written in one transaction with the batch that brought it, and what is read from it.

Each step opens a connection of its own and is a transaction of its own: steps are few (some a minute), come from
several threads, and then need nothing that could break between them. Writers take turns, as SQLite's do anyway.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from mqgate.core.errors import StorageRefused
from mqgate.core.message import milliseconds
from mqgate.stats import sql
from mqgate.stats.tables import LAYOUT, TABLES, Span, Table, table_of

__all__ = ["Applied", "Database", "Rows", "StatsStore"]

Row = Sequence[Any]
Rows = Mapping[str, Sequence[Row]]
_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_NEVER = 1 << 62
_KINDS = ("traffic", "latency", "polls")
# Under this name the positions say up to which instant retention has come.
_TIDY = "tidy"
# The last batch of a checkpoint may come again after any time: a driver that crashed is started when somebody does.
_IS_NOT_NEWEST = (
    "batch < (SELECT max(newer.batch) FROM stats_applied newer"
    " WHERE newer.pipeline = stats_applied.pipeline AND newer.run = stats_applied.run)"
)


class Execute(Protocol):
    """One statement, `?` for each value; or the same one with each of several rows."""

    def __call__(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]: ...

    def many(self, statement: str, rows: Iterable[Row]) -> None: ...


class Database(Protocol):
    """SQLite or PostgreSQL: a transaction, in which nobody else writes if it is a writer's."""

    def transaction(self, *, is_writing: bool) -> AbstractContextManager[Execute]: ...


class Applied(NamedTuple):
    """A micro-batch: which pipeline's, under which checkpoint, its number."""

    pipeline: str
    run: str
    batch: int


class StatsStore:
    """Opened for writing it makes its tables; a store of a later layout is refused either way."""

    def __init__(self, database: Database, *, is_writing: bool) -> None:
        self._database = database
        if is_writing:
            with database.transaction(is_writing=False) as execute:
                for statement in sql.create():
                    execute(statement)
                if not execute("SELECT number FROM stats_layout"):
                    execute("INSERT INTO stats_layout VALUES (?)", (LAYOUT,))
                if not execute(sql.query("positions"), (_TIDY,)):
                    _note_tidied(execute, Span.MINUTES, _oldest_whole_day(execute))
        with database.transaction(is_writing=False) as execute:
            _check_layout(execute)

    def apply(
        self,
        applied: Applied,
        rows: Rows,
        *,
        now: datetime,
        oldest: int | None = None,
        after: Sequence[Row] | None = None,
    ) -> bool:
        """Merge what a micro-batch brought, once: False says that it was in already, and nothing was changed.

        By its number; or, given the pipeline's positions that its rows come `after`, by whether those still stand.
        """
        with self._writing() as execute:
            is_known = bool(execute(sql.query("is_applied"), applied))
            stands = execute(sql.query("positions"), (applied.pipeline,))
            if is_known if after is None else set(stands) != set(map(tuple, after)):
                return False
            if is_known:
                # Its record is about to be replaced, which may say what is still to be rolled up.
                _roll_up_changed(execute, None)
            _put(execute, rows)
            _add_to_tidied(execute, rows)
            row = (*applied, milliseconds(now), oldest, int(oldest is None))
            _put(execute, {"applied": [row]})
        return True

    def is_applied(self, applied: Applied) -> bool:
        return bool(self.read("is_applied", *applied))

    def put(self, rows: Rows) -> None:
        """Merge rows that may come again and again."""
        with self._writing() as execute:
            _put(execute, rows)

    def replace(self, name: str, rows: Sequence[Row], **within: Any) -> None:
        """Put rows in the place of all those whose columns are as `within` says."""
        with self._writing() as execute:
            _replace(execute, table_of(name), rows, within)

    def refill(self, since: int, until: int, rows: Rows, *, after: int) -> bool:
        """Put minutes in the place of those of [since, until); False if batches applied `after` touched them too.

        Hours and days follow at once. Where minutes are thrown away already, an hour that it covers in part stays.
        """
        with self._writing() as execute:
            if execute(sql.query("touched_since"), (after, until)):
                return False
            for name in rows:
                execute(f"DELETE FROM {table_of(name).sql_name} WHERE at >= ? AND at < ?", (since, until))  # noqa: S608 - our own names
            _put(execute, rows)
            tidied = _tidied(execute, Span.MINUTES)
            _roll_up(execute, max(since, tidied), until)
            _roll_up(execute, since + -since % _HOUR_MS, min(until - until % _HOUR_MS, tidied))
        return True

    def roll_up(self, since: int | None = None) -> int:
        """Hours and days anew from the minutes that changed, or from an instant on; how many hours were looked at."""
        with self._writing() as execute:
            return _roll_up_changed(execute, since)

    def tidy(self, now: datetime, kept: Mapping[Span, timedelta]) -> dict[str, int]:
        """Throw away what is older than its table's retention, by whole days where roll-ups need them whole."""
        gone = {}
        with self._writing() as execute:
            _roll_up_changed(execute, None)
            for table in TABLES.values():
                if table.span not in kept:
                    continue
                until = milliseconds(now - kept[table.span])
                if table.span in {Span.MINUTES, Span.HOURS}:
                    until -= until % _DAY_MS
                    _note_tidied(execute, table.span, until)
                where = f"at < ? AND {_IS_NOT_NEWEST}" if table.name == "applied" else "at < ?"
                ((count,),) = execute(f"SELECT count(*) FROM {table.sql_name} WHERE {where}", (until,))  # noqa: S608 - our own names
                if count:
                    execute(f"DELETE FROM {table.sql_name} WHERE {where}", (until,))  # noqa: S608 - our own names
                    gone[table.name] = count
        return gone

    def read(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement of queries/ finds."""
        with self._database.transaction(is_writing=False) as execute:
            return execute(sql.query(name), values)

    def select(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement finds."""
        with self._database.transaction(is_writing=False) as execute:
            return execute(statement, values)

    @contextmanager
    def _writing(self) -> Iterator[Execute]:
        with self._database.transaction(is_writing=True) as execute:
            yield execute


def _check_layout(execute: Execute) -> None:
    ((found,),) = execute("SELECT number FROM stats_layout")
    if found > LAYOUT:
        raise StorageRefused(
            f"the figures are in layout {found}, this mqgate knows {LAYOUT}: use the newer mqgate that made them"
        )


def _put(execute: Execute, rows: Rows) -> None:
    for name, found in rows.items():
        if found:
            execute.many(sql.insert(table_of(name)), found)


def _replace(execute: Execute, table: Table, rows: Sequence[Row], within: Mapping[str, Any]) -> None:
    where = " AND ".join(f'"{column}" = ?' for column in within) or "1 = 1"
    execute(f"DELETE FROM {table.sql_name} WHERE {where}", tuple(within.values()))  # noqa: S608 - our own names
    _put(execute, {table.name: rows})


def _tidied(execute: Execute, span: Span) -> int:
    """The instant before which retention has taken minutes or hours: what is made of those cannot be made anew."""
    found = execute(sql.query("positions"), (_TIDY,))
    return next((until for _, name, until in found if name == span.value), 0)


def _oldest_whole_day(execute: Execute) -> int:
    """What `_tidied` says of a store that never noted it: hours may be there whose minutes are not."""
    ((hour,),) = execute("SELECT max(at) FROM stats_traffic_hour")
    if hour is None:
        return 0
    ((minute,),) = execute("SELECT min(at) FROM stats_traffic_minute")
    found = hour + _DAY_MS if minute is None else minute
    return int(found - found % _DAY_MS)


def _note_tidied(execute: Execute, span: Span, until: int) -> None:
    _put(execute, {"positions": [(_TIDY, "", span.value, max(until, _tidied(execute, span)))]})


def _add_to_tidied(execute: Execute, rows: Rows) -> None:
    """Late minutes of a time whose minutes are thrown away: its hours and days are not made anew, but added to."""
    tidied = _tidied(execute, Span.MINUTES)
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
    first = max(since, _tidied(execute, Span.MINUTES))
    _roll_up(execute, first, _NEVER)
    execute("UPDATE stats_applied SET is_rolled_up = 1 WHERE is_rolled_up = 0")
    return max(0, (max(last or since, since) - first) // _HOUR_MS + 1)


def _roll_up(execute: Execute, since: int, until: int) -> None:
    """Hours of [since, until) anew, and then their days, where there are all hours of them."""
    if since >= until:
        return
    for kind in _KINDS:
        _roll(execute, f"{kind}_minute", f"{kind}_hour", since, until, _HOUR_MS)
        _roll(execute, f"{kind}_hour", f"{kind}_day", max(since, _tidied(execute, Span.HOURS)), until, _DAY_MS)


def _roll(execute: Execute, source: str, target: str, since: int, until: int, width: int) -> None:
    """Sums of a finer table, of all steps that [since, until) touches."""
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
