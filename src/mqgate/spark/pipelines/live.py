"""The live pipeline: events as they come, into the tables, once.

    a micro-batch that is in the tables already      is left out (Spark repeats the last one after a crash), but for
                                                     what lies behind the place that they have come to: a checkpoint
                                                     that was put back from a backup gives old numbers to new messages
    a batch of a gateway that is in the tables       is left out (a gateway repeats one whose fate it did not learn)
All of a micro-batch, its number and where it ended go into the store in one transaction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for them

from mqgate.core.message import milliseconds
from mqgate.spark.pipelines import minute
from mqgate.spark.pipelines.decode import BATCH, QUARANTINE, decode_messages
from mqgate.stats.store import Applied, Rows, StatsStore

__all__ = ["PIPELINE", "Batches", "classify_batches", "count", "exclude_batches", "figures", "run_of", "told"]

PIPELINE = "minutes"
_KEY = ("gateway", "incarnation", "sequence")


class BatchSuperseded(RuntimeError):
    """Somebody else counted meanwhile."""

    def __init__(self) -> None:
        super().__init__("the tables went on while a batch was counted: does another driver write to them?")


class Batches(NamedTuple):
    """What a micro-batch holds: the gateways' batches that are new, those that are not, and what cannot be read."""

    rows: Rows
    positions: Rows
    repeated: Sequence[tuple[str, int]]


def count(store: StatsStore, kept: timedelta) -> Callable[[DataFrame, int], None]:
    """What a streaming query calls with each of its micro-batches of messages."""

    def take(messages: DataFrame, number: int) -> None:
        applied = Applied(PIPELINE, run_of(messages), number)
        positions = store.read("positions", PIPELINE)
        if store.is_applied(applied):
            messages = _behind(messages, positions)
            if messages.isEmpty():
                return
        rows = decode_messages(messages).persist()
        try:
            found = classify_batches(told(rows), lambda keys: _known(store, keys))
            fresh = exclude_batches(rows, found.repeated)
            tables = figures(fresh, kept)
        finally:
            rows.unpersist()
        oldest = min((row[0] for name in ("traffic_minute", "polls_minute") for row in tables[name]), default=None)
        both = {**tables, **found.rows, **found.positions}
        if not store.apply(applied, both, now=datetime.now(UTC), oldest=oldest, after=positions):
            raise BatchSuperseded

    return take


def figures(rows: DataFrame, kept: timedelta) -> dict[str, list[Row]]:
    """The tables' rows of decoded rows."""
    kept_ms = kept // timedelta(milliseconds=1)
    timely = minute.in_time(rows, kept_ms)
    return {
        "traffic_minute": minute.traffic(timely).collect(),
        "latency_minute": minute.latency(timely).collect(),
        "polls_minute": minute.polls(timely).collect(),
        "lag_minute": minute.lag(timely).collect(),
        "late": minute.late(rows, kept_ms).collect(),
    }


def classify_batches(
    told: Iterable[Mapping[str, Any]], known: Callable[[Sequence[tuple[Any, ...]]], set[Any]]
) -> Batches:
    """Sort what was read: `known` says which keys (gateway, incarnation, sequence) are in the tables."""
    told = sorted(told, key=lambda row: (row["batch_topic"], row["batch_queue"], row["batch_offset"]))
    seen = known([tuple(row[name] for name in _KEY) for row in told if row["table"] == BATCH])
    fresh, aside, repeated = [], [], []
    ends: dict[tuple[str, str], int] = {}
    for row in told:
        place = (row["batch_topic"], row["batch_queue"], row["batch_offset"])
        ends[place[:2]] = place[2] + 1
        at = milliseconds(row["batch_at"])
        if row["table"] == QUARANTINE:
            aside.append((*place, at, row["gateway"], row["schema"], row["reason"], row["bytes"]))
            continue
        key = tuple(row[name] for name in _KEY)
        if key in seen:
            repeated.append(place[1:])
            continue
        seen.add(key)
        fresh.append((*key, at, row["count"], row["dropped"], int(row["is_last"])))
    positions = [(PIPELINE, topic, queue, offset) for (topic, queue), offset in ends.items()]
    return Batches({"event_batches": fresh, "quarantine": aside}, {"positions": positions}, repeated)


def run_of(frame: DataFrame) -> str:
    """The id of the streaming query's checkpoint: numbers of batches mean something only together with it."""
    return frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""


def _behind(messages: DataFrame, positions: Iterable[tuple[Any, ...]]) -> DataFrame:
    """Those at or behind positions (topic, queue, offset); all of a queue that has none."""
    for topic, queue, offset in positions:
        is_elsewhere = (F.col("topic") != topic) | (F.col("queue") != queue)
        messages = messages.where(is_elsewhere | (F.col("offset") >= offset))
    return messages


def told(rows: DataFrame) -> list[dict[str, Any]]:
    """What decoded rows tell of their batches, not of what is in them."""
    columns = ("batch_topic", "batch_queue", "batch_offset", "batch_at", *_KEY)
    about = rows.where(F.col("table").isin(BATCH, QUARANTINE))
    found = about.select("table", *columns, "schema", "dropped", "is_last", "count", "reason", "bytes").collect()
    return [row.asDict() | {"batch_at": row["batch_at"].astimezone(UTC)} for row in found]


def _known(store: StatsStore, keys: Sequence[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    """Which of these are in the tables, asked by gateway and incarnation."""
    spans: dict[tuple[str, str], list[int]] = {}
    for gateway, incarnation, sequence in keys:
        spans.setdefault((gateway, incarnation), []).append(sequence)
    return {
        (*whose, sequence)
        for whose, numbers in spans.items()
        for (sequence,) in store.read("event_batches_between", *whose, min(numbers), max(numbers))
    }


def exclude_batches(rows: DataFrame, repeated: Sequence[tuple[str, int]]) -> DataFrame:
    """Rows but those of batches at these places (queue and offset)."""
    by_queue: dict[str, list[int]] = {}
    for queue, offset in repeated:
        by_queue.setdefault(queue, []).append(offset)
    for queue, offsets in by_queue.items():
        rows = rows.where((F.col("batch_queue") != queue) | ~F.col("batch_offset").isin(offsets))
    return rows
