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
        with database.transaction(is_writing=False) as execute:
            _check_layout(execute)

    def apply(
        self, applied: Applied, rows: Rows, *, now: datetime, oldest: int | None = None, positions: Rows | None = None
    ) -> bool:
        """Merge what a micro-batch brought, once: False says that it was in already, and nothing was changed."""
        with self._writing() as execute:
            if execute(sql.query("is_applied"), applied):
                return False
            _put(execute, rows)
            _put(execute, positions or {})
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
        """Put minutes in the place of those of [since, until); False if batches applied `after` touched them too."""
        with self._writing() as execute:
            if execute(sql.query("touched_since"), (after, until)):
                return False
            for name in rows:
                execute(f"DELETE FROM {table_of(name).sql_name} WHERE at >= ? AND at < ?", (since, until))  # noqa: S608 - our own names
            _put(execute, rows)
            # A batch of its own, so that the next roll-up begins there.
            _put(execute, {"applied": [("backfill", str(since), until, after, since, 0)]})
        return True

    def roll_up(self, since: int | None = None) -> int:
        """Hours and days anew from the minutes that changed, or from an instant on; how many hours were looked at."""
        with self._writing() as execute:
            if since is None:
                ((since, last),) = execute(sql.query("not_rolled_up"))
            else:
                ((last,),) = execute("SELECT max(at) FROM stats_traffic_minute")
            if since is None:
                return 0
            kept = execute("SELECT min(at) FROM stats_traffic_minute")[0][0] or since
            # Minutes are thrown away by whole days: of those days the hours are all that is known.
            first = max(since, kept - kept % _DAY_MS)
            for kind in ("traffic", "latency", "polls"):
                _roll(execute, f"{kind}_minute", f"{kind}_hour", first, _HOUR_MS)
                _roll(execute, f"{kind}_hour", f"{kind}_day", first, _DAY_MS)
            execute("UPDATE stats_applied SET is_rolled_up = 1 WHERE is_rolled_up = 0")
        return max(0, (max(last or since, since) - first) // _HOUR_MS + 1)

    def tidy(self, now: datetime, kept: Mapping[Span, timedelta]) -> dict[str, int]:
        """Throw away what is older than its table's retention, by whole days where roll-ups need them whole."""
        gone = {}
        with self._writing() as execute:
            for table in TABLES.values():
                if table.span not in kept:
                    continue
                until = milliseconds(now - kept[table.span])
                if table.span in {Span.MINUTES, Span.HOURS}:
                    until -= until % _DAY_MS
                where = "at < ? AND is_rolled_up = 1" if table.name == "applied" else "at < ?"
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


def _roll(execute: Execute, source: str, target: str, since: int, width: int) -> None:
    """Sums of a finer table, from the beginning of the step in which `since` lies."""
    fine, coarse = table_of(source), table_of(target)
    begin = since - since % width
    kept = sql.quoted(*coarse.keys[1:])
    sums = ", ".join(f'sum("{column}")' for column in coarse.values)
    execute(f"DELETE FROM {coarse.sql_name} WHERE at >= ?", (begin,))  # noqa: S608 - our own names
    step = f"at - at % {width}"
    execute(
        f"INSERT INTO {coarse.sql_name} ({sql.quoted(*coarse.columns)})"  # noqa: S608 - our own names
        f" SELECT {step}, {kept}, {sums} FROM {fine.sql_name} WHERE at >= ? GROUP BY {step}, {kept}",
        (begin,),
    )
