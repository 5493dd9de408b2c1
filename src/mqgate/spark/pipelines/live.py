"""The live pipeline: counts each event once.

- A micro-batch that is already applied is skipped: Spark repeats the last one after a crash. Messages after the stored
  positions are counted all the same, because a checkpoint restored from a backup gives old numbers to new messages.
- An event batch that is already stored is skipped: a gateway repeats a batch whose outcome is unknown.
- The rows of a micro-batch, its number and its end positions are stored in one transaction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from mqgate.core.message import milliseconds
from mqgate.spark.pipelines import minute
from mqgate.spark.pipelines.decode import BATCH, QUARANTINE, decode_messages
from mqgate.stats.store import Applied, Rows, StatsStore

__all__ = [
    "PIPELINE",
    "Batches",
    "batch_counter",
    "batch_rows",
    "classify_batches",
    "exclude_batches",
    "figures",
    "run_of",
]

PIPELINE = "minutes"
_KEY = ("gateway", "incarnation", "sequence")


class BatchSuperseded(RuntimeError):
    """Another driver applied a batch at the same time."""

    def __init__(self) -> None:
        super().__init__(
            "the stored positions changed while a batch was counted: check that no other driver writes to the store"
        )


class Batches(NamedTuple):
    """The event batches of a micro-batch: rows of new and quarantined ones, and the positions of repeated ones."""

    rows: Rows
    positions: Rows
    repeated: Sequence[tuple[str, int]]


def batch_counter(store: StatsStore, kept: timedelta) -> Callable[[DataFrame, int], None]:
    """Return the function that a streaming query calls with each micro-batch."""

    def count_batch(messages: DataFrame, number: int) -> None:
        applied = Applied(PIPELINE, run_of(messages), number)
        positions = store.read("positions", PIPELINE)
        if store.is_applied(applied):
            messages = _after_positions(messages, positions)
            if messages.isEmpty():
                return
        rows = decode_messages(messages).persist()
        try:
            found = classify_batches(batch_rows(rows), lambda keys: _known(store, keys))
            new_rows = exclude_batches(rows, found.repeated)
            tables = figures(new_rows, kept)
        finally:
            rows.unpersist()
        oldest = min((row[0] for name in ("traffic_minute", "polls_minute") for row in tables[name]), default=None)
        all_rows = {**tables, **found.rows, **found.positions}
        if not store.apply(applied, all_rows, now=datetime.now(UTC), oldest=oldest, after=positions):
            raise BatchSuperseded

    return count_batch


def figures(rows: DataFrame, kept: timedelta) -> dict[str, list[Row]]:
    """Compute the table rows of decoded rows."""
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
    batch_rows: Iterable[Mapping[str, Any]], known: Callable[[Sequence[tuple[Any, ...]]], set[Any]]
) -> Batches:
    """Classify batches. `known` returns which keys (gateway, incarnation, sequence) are already stored."""
    batch_rows = sorted(batch_rows, key=lambda row: (row["batch_topic"], row["batch_queue"], row["batch_offset"]))
    seen = known([tuple(row[name] for name in _KEY) for row in batch_rows if row["table"] == BATCH])
    new, quarantined, repeated = [], [], []
    ends: dict[tuple[str, str], int] = {}
    for row in batch_rows:
        place = (row["batch_topic"], row["batch_queue"], row["batch_offset"])
        ends[place[:2]] = place[2] + 1
        at = milliseconds(row["batch_at"])
        if row["table"] == QUARANTINE:
            quarantined.append((*place, at, row["gateway"], row["schema"], row["reason"], row["bytes"]))
            continue
        key = tuple(row[name] for name in _KEY)
        if key in seen:
            repeated.append(place[1:])
            continue
        seen.add(key)
        new.append((*key, at, row["count"], row["dropped"], int(row["is_last"])))
    positions = [(PIPELINE, topic, queue, offset) for (topic, queue), offset in ends.items()]
    return Batches({"event_batches": new, "quarantine": quarantined}, {"positions": positions}, repeated)


def run_of(frame: DataFrame) -> str:
    """Return the id of the checkpoint of the streaming query. Batch numbers are unique only within it."""
    return frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""


def _after_positions(messages: DataFrame, positions: Iterable[tuple[Any, ...]]) -> DataFrame:
    """Return messages at or after positions (topic, queue, offset), and all messages of other queues."""
    for topic, queue, offset in positions:
        is_other_queue = (F.col("topic") != topic) | (F.col("queue") != queue)
        messages = messages.where(is_other_queue | (F.col("offset") >= offset))
    return messages


def batch_rows(rows: DataFrame) -> list[dict[str, Any]]:
    """Return the rows that describe batches, without their events."""
    columns = ("batch_topic", "batch_queue", "batch_offset", "batch_at", *_KEY)
    about = rows.where(F.col("table").isin(BATCH, QUARANTINE))
    found = about.select("table", *columns, "schema", "dropped", "is_last", "count", "reason", "bytes").collect()
    return [row.asDict() | {"batch_at": row["batch_at"].astimezone(UTC)} for row in found]


def _known(store: StatsStore, keys: Sequence[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    """Return the keys that are already stored, with one query per gateway and incarnation."""
    sequences: dict[tuple[str, str], list[int]] = {}
    for gateway, incarnation, sequence in keys:
        sequences.setdefault((gateway, incarnation), []).append(sequence)
    return {
        (*incarnation_key, sequence)
        for incarnation_key, numbers in sequences.items()
        for (sequence,) in store.read("event_batches_between", *incarnation_key, min(numbers), max(numbers))
    }


def exclude_batches(rows: DataFrame, repeated: Sequence[tuple[str, int]]) -> DataFrame:
    """Return the rows without those of the batches at these queues and offsets."""
    by_queue: dict[str, list[int]] = {}
    for queue, offset in repeated:
        by_queue.setdefault(queue, []).append(offset)
    for queue, offsets in by_queue.items():
        rows = rows.where((F.col("batch_queue") != queue) | ~F.col("batch_offset").isin(offsets))
    return rows
