"""Table definitions: columns, and how a row with an existing key is merged.

Instants are milliseconds since 1970. Text columns of a key are empty instead of null, because nulls in a key are never
equal. Retention uses the column `at`.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["SCHEMA_VERSION", "TABLES", "Merge", "RetentionClass", "Table", "table_of"]

# Increase it with every change of the definitions below. A store with a higher version is rejected.
SCHEMA_VERSION = 1


class Merge(Enum):
    """How a row with an existing key is merged."""

    ADD = "add its numbers to the existing row"
    LATEST = "replace the existing row unless that one has a later instant in its first value"
    REPLACE = "replace the existing row"
    KEEP = "keep the existing row"


class RetentionClass(Enum):
    """Retention of a table, named after its setting in [stats]."""

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
    retention: RetentionClass

    @property
    def columns(self) -> tuple[str, ...]:
        return self.keys + self.values

    @property
    def sql_name(self) -> str:
        return f"stats_{self.name}"


# All other columns are integers, except NUMBERS.
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
_DISPOSITIONS = (
    "published",
    "acked",
    "dead",
    "filtered",
    "expired",
    "skipped",
    "pending",
    "unwatched",
    "unknown",
    "missing",
)

TABLES = {
    table.name: table
    for table in (
        Table("traffic_minute", *_TRAFFIC, Merge.ADD, RetentionClass.MINUTES),
        Table("traffic_hour", *_TRAFFIC, Merge.ADD, RetentionClass.HOURS),
        Table("traffic_day", *_TRAFFIC, Merge.ADD, RetentionClass.DAYS),
        Table("latency_minute", *_LATENCY, Merge.ADD, RetentionClass.MINUTES),
        Table("latency_hour", *_LATENCY, Merge.ADD, RetentionClass.HOURS),
        Table("latency_day", *_LATENCY, Merge.ADD, RetentionClass.DAYS),
        Table("polls_minute", *_POLLS, Merge.ADD, RetentionClass.MINUTES),
        Table("polls_hour", *_POLLS, Merge.ADD, RetentionClass.HOURS),
        Table("polls_day", *_POLLS, Merge.ADD, RetentionClass.DAYS),
        Table(
            "lag_minute",
            ("at", "topic", "group", "client", "queue"),
            ("sampled_at", "min", "max", "committed", "ready", "leased", "waiting", "oldest_at"),
            Merge.LATEST,
            RetentionClass.LAG,
        ),
        # Events older than the retention of minutes, by the minute in which they arrived.
        Table("late", ("at", "topic", "kind"), ("n",), Merge.ADD, RetentionClass.FINDINGS),
        Table(
            "quarantine",
            ("topic", "queue", "offset"),
            ("at", "gateway", "schema", "reason", "bytes"),
            Merge.KEEP,
            RetentionClass.FINDINGS,
        ),
        Table(
            "event_batches",
            ("gateway", "incarnation", "sequence"),
            ("at", "rows", "dropped", "is_last"),
            Merge.KEEP,
            RetentionClass.BATCHES,
        ),
        Table("reconciliation", ("at", "topic", "group", "client"),
              (*_DISPOSITIONS, "duplicates", "late_acks", "state", "why", "judged_at"),
              Merge.REPLACE, RetentionClass.FINDINGS),
        Table("findings", ("at", "topic", "group", "client", "queue", "offset", "finding"), ("id", "detail"),
              Merge.REPLACE, RetentionClass.FINDINGS),
        Table("stuck", ("topic", "group", "queue", "offset"),
              ("at", "id", "client", "delivery", "stored_at", "reason"), Merge.REPLACE, RetentionClass.FINDINGS),
        # Applied micro-batches. `oldest` is the oldest minute that the batch changed.
        Table("applied", ("pipeline", "run", "batch"), ("at", "oldest", "is_rolled_up"), Merge.REPLACE,
              RetentionClass.BATCHES),
        Table("positions", ("pipeline", "topic", "queue"), ("offset",), Merge.REPLACE, RetentionClass.FOREVER),
        Table("pipelines", ("pipeline",),
              ("at", "state", "batch", "rows", "rows_per_second", "behind", "restarts", "error"),
              Merge.REPLACE, RetentionClass.FOREVER),
    )
}  # fmt: skip


def table_of(name: str) -> Table:
    return TABLES[name]
