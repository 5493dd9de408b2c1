"""The tables as data: their columns, and what happens when a row with the same key comes again.

Instants are milliseconds since 1970. A key's text is empty where there is nothing to tell, since a null in a key is
equal to nothing. `at` is what retention goes by.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["LAYOUT", "TABLES", "Merge", "Span", "Table", "table_of"]

# Another number for every change of what follows: a store of a later one is refused.
LAYOUT = 1


class Merge(Enum):
    """What becomes of a row whose key is there already."""

    ADD = "its numbers are added"
    LATEST = "it replaces the one before, unless that is from a later moment (its first value)"
    REPLACE = "it replaces the one before"
    KEEP = "the one before stays"


class Span(Enum):
    """How long rows are kept; the settings say in seconds."""

    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"
    LAG = "lag"
    FINDINGS = "findings"
    BATCHES = "batches"
    FOREVER = "forever"


class Table(NamedTuple):
    name: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    merge: Merge
    span: Span

    @property
    def columns(self) -> tuple[str, ...]:
        return self.keys + self.values

    @property
    def sql_name(self) -> str:
        return f"stats_{self.name}"


# Whatever is not text is a whole number, except for these.
TEXTS = frozenset(
    {
        "topic",
        "kind",
        "producer",
        "group",
        "client",
        "outcome",
        "measure",
        "queue",
        "gateway",
        "incarnation",
        "schema",
        "reason",
        "pipeline",
        "run",
        "id",
        "finding",
        "detail",
        "state",
        "why",
        "error",
    }
)
NUMBERS = frozenset({"rows_per_second"})

_TRAFFIC = ("at", "topic", "kind", "producer", "group", "client", "outcome"), ("n", "bytes", "redelivered")
_LATENCY = ("at", "topic", "group", "measure", "bucket"), ("n",)
_POLLS = ("at", "topic", "group", "client", "outcome"), ("n",)
_FATES = ("published", "acked", "dead", "filtered", "expired", "skipped", "pending", "unwatched", "unknown", "missing")

TABLES = {
    table.name: table
    for table in (
        Table("traffic_minute", *_TRAFFIC, Merge.ADD, Span.MINUTES),
        Table("traffic_hour", *_TRAFFIC, Merge.ADD, Span.HOURS),
        Table("traffic_day", *_TRAFFIC, Merge.ADD, Span.DAYS),
        Table("latency_minute", *_LATENCY, Merge.ADD, Span.MINUTES),
        Table("latency_hour", *_LATENCY, Merge.ADD, Span.HOURS),
        Table("latency_day", *_LATENCY, Merge.ADD, Span.DAYS),
        Table("polls_minute", *_POLLS, Merge.ADD, Span.MINUTES),
        Table("polls_hour", *_POLLS, Merge.ADD, Span.HOURS),
        Table("polls_day", *_POLLS, Merge.ADD, Span.DAYS),
        Table(
            "lag_minute",
            ("at", "topic", "group", "client", "queue"),
            ("sampled_at", "min", "max", "committed", "ready", "leased", "waiting", "oldest_at"),
            Merge.LATEST,
            Span.LAG,
        ),
        # Events too old for the minutes that are kept, by the minute in which they arrived.
        Table("late", ("at", "topic", "kind"), ("n",), Merge.ADD, Span.FINDINGS),
        Table(
            "quarantine",
            ("topic", "queue", "offset"),
            ("at", "gateway", "schema", "reason", "bytes"),
            Merge.KEEP,
            Span.FINDINGS,
        ),
        Table(
            "event_batches",
            ("gateway", "incarnation", "sequence"),
            ("at", "rows", "dropped", "is_last"),
            Merge.KEEP,
            Span.BATCHES,
        ),
        Table("reconciliation", ("at", "topic", "group", "client"),
              (*_FATES, "duplicates", "late_acks", "state", "why", "judged_at"), Merge.REPLACE, Span.FINDINGS),
        Table("findings", ("at", "topic", "group", "client", "queue", "offset", "finding"), ("id", "detail"),
              Merge.REPLACE, Span.FINDINGS),
        Table("stuck", ("topic", "group", "queue", "offset"),
              ("at", "id", "client", "delivery", "stored_at", "reason"), Merge.REPLACE, Span.FINDINGS),
        # Which micro-batches are in the tables; `oldest` is the oldest minute that one touched.
        Table("applied", ("pipeline", "run", "batch"), ("at", "oldest", "is_rolled_up"), Merge.REPLACE, Span.BATCHES),
        Table("positions", ("pipeline", "topic", "queue"), ("offset",), Merge.REPLACE, Span.FOREVER),
        Table("pipelines", ("pipeline",),
              ("at", "state", "batch", "rows", "rows_per_second", "behind", "restarts", "error"),
              Merge.REPLACE, Span.FOREVER),
    )
}  # fmt: skip


def table_of(name: str) -> Table:
    return TABLES[name]
