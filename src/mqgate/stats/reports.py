"""Reports over the statistics tables: one page per call, oldest rows first."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Literal, NamedTuple

from mqgate.core.message import milliseconds
from mqgate.stats import sql
from mqgate.stats.buckets import quantiles
from mqgate.stats.store import StatsStore
from mqgate.stats.tables import table_of

__all__ = [
    "QUANTILES",
    "ReportQuery",
    "Step",
    "findings",
    "lag",
    "latency",
    "pipelines",
    "reconciliation",
    "redelivery",
    "stuck",
    "traffic",
]

Step = Literal["minute", "hour", "day"]
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_LAG_LOOK_BACK_MS = 600_000
_MS = timedelta(milliseconds=1)


class ReportQuery(NamedTuple):
    """A time range, a page, and filters by column. A report ignores filters that it does not support."""

    since: datetime
    until: datetime
    limit: int
    offset: int = 0
    step: Step = "minute"
    filters: Mapping[str, str] = {}

    def span(self) -> tuple[int, int]:
        return milliseconds(self.since), milliseconds(self.until)

    def page(self) -> tuple[int, int]:
        return self.limit, self.offset

    def names(self, *wanted: str) -> list[str]:
        """Return each filter value twice, for `? = '' OR column = ?`."""
        return [self.filters.get(name, "") for name in wanted for _ in range(2)]


def traffic(store: StatsStore, query: ReportQuery, by: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return counts per step and per requested column."""
    statement = sql.query("traffic").replace("{step}", query.step).replace("{by}", sql.quoted(*by))
    names = query.names("topic", "group", "producer", "client", "kind")
    rows = store.select(statement, (*query.span(), *names, *query.page()))
    return [dict(zip(("at", *by, "count", "bytes", "redelivered"), row, strict=True)) for row in rows]


def latency(store: StatsStore, query: ReportQuery) -> list[dict[str, Any]]:
    """Return quantiles in seconds per step, topic, group and measure."""
    statement = sql.query("latency").replace("{step}", query.step)
    rows = store.select(statement, (*query.span(), *query.names("topic", "group", "measure"), *query.page()))
    found = []
    for names, same in groupby(rows, key=lambda row: row[:4]):
        counts = {row[4]: row[5] for row in same}
        seconds = [None if ms is None else round(ms / 1000, 4) for ms in quantiles(counts, list(QUANTILES.values()))]
        found.append(
            dict(zip(("at", "topic", "group", "measure"), names, strict=True))
            | {"count": sum(counts.values())}
            | dict(zip(QUANTILES, seconds, strict=True))
        )
    return found


def redelivery(store: StatsStore, query: ReportQuery) -> list[dict[str, Any]]:
    """Return deliveries, redeliveries, dead letters and empty polls, with their ratios."""
    statement = sql.query("redelivery").replace("{step}", query.step)
    rows = store.select(statement, (*query.span(), *query.names("topic", "group"), *query.page()))
    names = ("at", "topic", "group", "delivered", "redelivered", "dead", "polls", "empty_polls")
    return [
        dict(zip(names, row, strict=True)) | {"ratio": _ratio(row[4], row[3]), "empty_ratio": _ratio(row[7], row[6])}
        for row in rows
    ]


def lag(store: StatsStore, query: ReportQuery) -> list[dict[str, Any]]:
    """Return lag per minute: its parts, its age, its growth per second, and the time to drain at that rate."""
    since, until = query.span()
    names = query.names("topic", "group", "client")
    rows = store.read("lag", since - _LAG_LOOK_BACK_MS, until, *names, since, *query.page())
    return [_lag_point(*row) for row in rows]


def reconciliation(store: StatsStore, query: ReportQuery) -> list[dict[str, Any]]:
    return _select_rows(
        store, "reconciliation", (*query.span(), *query.names("topic", "group", "state"), *query.page())
    )


def findings(store: StatsStore, query: ReportQuery) -> list[dict[str, Any]]:
    return _select_rows(store, "findings", (*query.span(), *query.names("topic", "group", "finding"), *query.page()))


def stuck(store: StatsStore, query: ReportQuery) -> list[dict[str, Any]]:
    return _select_rows(store, "stuck", (*query.names("topic", "group"), *query.page()))


def pipelines(store: StatsStore) -> list[dict[str, Any]]:
    return _select_rows(store, "pipelines", ())


def _select_rows(store: StatsStore, name: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(table_of(name).columns, row, strict=True)) for row in store.read(name, *values)]


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _lag_point(
    at: int,
    topic: str,
    group: str,
    client: str,
    sampled_at: int,
    ready: int,
    leased: int,
    waiting: int,
    oldest_at: int | None,
    grown: int | None,
    elapsed: int | None,
) -> dict[str, Any]:
    total = ready + leased + waiting
    growth = None if grown is None or not elapsed else grown * 1000 / elapsed
    is_shrinking = growth is not None and growth < 0
    return {
        "at": at,
        "topic": topic,
        "group": group,
        "client": client,
        "lag": total,
        "ready": ready,
        "leased": leased,
        "waiting": waiting,
        "oldest_age": None if oldest_at is None else max(0, sampled_at - oldest_at) / 1000,
        "growth": None if growth is None else round(growth, 3),
        "drain_time": 0.0 if not total else round(total / -growth, 1) if growth and is_shrinking else None,
    }
