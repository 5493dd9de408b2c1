"""What is shown of the tables: a page at a time, the oldest first."""

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
    "SHARES",
    "Asked",
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
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_LOOK_BACK_MS = 600_000
_MS = timedelta(milliseconds=1)


class Asked(NamedTuple):
    """A span of time, a page of it, and names to filter by (those that a report does not know are left out)."""

    since: datetime
    until: datetime
    most: int
    skipped: int = 0
    step: Step = "minute"
    filters: Mapping[str, str] = {}

    def span(self) -> tuple[int, int]:
        return milliseconds(self.since), milliseconds(self.until)

    def page(self) -> tuple[int, int]:
        return self.most, self.skipped

    def names(self, *wanted: str) -> list[str]:
        """Each twice: empty, or equal."""
        return [self.filters.get(name, "") for name in wanted for _ in range(2)]


def traffic(store: StatsStore, asked: Asked, by: tuple[str, ...]) -> list[dict[str, Any]]:
    """Counts by step and the names asked for (columns of the table)."""
    statement = sql.query("traffic").replace("{step}", asked.step).replace("{by}", sql.quoted(*by))
    names = asked.names("topic", "group", "producer", "client", "kind")
    rows = store.select(statement, (*asked.span(), *names, *asked.page()))
    return [dict(zip(("at", *by, "count", "bytes", "redelivered"), row, strict=True)) for row in rows]


def latency(store: StatsStore, asked: Asked) -> list[dict[str, Any]]:
    """Quantiles by step, topic, group and measure, in seconds."""
    statement = sql.query("latency").replace("{step}", asked.step)
    rows = store.select(statement, (*asked.span(), *asked.names("topic", "group", "measure"), *asked.page()))
    found = []
    for names, same in groupby(rows, key=lambda row: row[:4]):
        counts = {row[4]: row[5] for row in same}
        seconds = [None if ms is None else round(ms / 1000, 4) for ms in quantiles(counts, list(SHARES.values()))]
        found.append(
            dict(zip(("at", "topic", "group", "measure"), names, strict=True))
            | {"count": sum(counts.values())}
            | dict(zip(SHARES, seconds, strict=True))
        )
    return found


def redelivery(store: StatsStore, asked: Asked) -> list[dict[str, Any]]:
    """How much came again, died, or was asked for in vain, with their shares."""
    statement = sql.query("redelivery").replace("{step}", asked.step)
    rows = store.select(statement, (*asked.span(), *asked.names("topic", "group"), *asked.page()))
    names = ("at", "topic", "group", "delivered", "redelivered", "dead", "polls", "empty_polls")
    return [
        dict(zip(names, row, strict=True)) | {"ratio": _share(row[4], row[3]), "empty_ratio": _share(row[7], row[6])}
        for row in rows
    ]


def lag(store: StatsStore, asked: Asked) -> list[dict[str, Any]]:
    """Lag by the minute: its parts, its age, how fast it grows, and when it will be gone at this pace."""
    since, until = asked.span()
    names = asked.names("topic", "group", "client")
    rows = store.read("lag", since - _LOOK_BACK_MS, until, *names, since, *asked.page())
    return [_lag_point(*row) for row in rows]


def reconciliation(store: StatsStore, asked: Asked) -> list[dict[str, Any]]:
    return _whole(store, "reconciliation", (*asked.span(), *asked.names("topic", "group", "state"), *asked.page()))


def findings(store: StatsStore, asked: Asked) -> list[dict[str, Any]]:
    return _whole(store, "findings", (*asked.span(), *asked.names("topic", "group", "finding"), *asked.page()))


def stuck(store: StatsStore, asked: Asked) -> list[dict[str, Any]]:
    return _whole(store, "stuck", (*asked.names("topic", "group"), *asked.page()))


def pipelines(store: StatsStore) -> list[dict[str, Any]]:
    return _whole(store, "pipelines", ())


def _whole(store: StatsStore, name: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(table_of(name).columns, row, strict=True)) for row in store.read(name, *values)]


def _share(part: int, whole: int) -> float | None:
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
