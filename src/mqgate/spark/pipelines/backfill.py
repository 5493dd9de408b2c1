"""Recomputes minutes from the events topic or from the archive, and replaces the stored ones.

A backfill counts exactly the events that the live pipeline has counted (up to the stored positions), so that later
events are added once. If late events of these minutes arrive during a backfill, it must be repeated.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from mqgate.core.message import milliseconds
from mqgate.spark.pipelines import archive
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.decode import decode_messages
from mqgate.spark.pipelines.live import PIPELINE, batch_rows, classify_batches, exclude_batches, figures
from mqgate.stats.store import StatsStore

__all__ = ["BackfillConflict", "SourceTruncated", "backfill"]

_TABLES = ("traffic_minute", "latency_minute", "polls_minute", "lag_minute")
# The clock of a gateway may be ahead by this much without a correction.
_CLOCK_TOLERANCE = timedelta(seconds=2)


class BackfillConflict(RuntimeError):
    """Late events changed these minutes during the backfill."""

    def __init__(self) -> None:
        super().__init__("the live pipeline added late events to these minutes during the backfill: run it again")


class SourceTruncated(RuntimeError):
    """The topic no longer contains all events, so the new figures would be too low."""

    def __init__(self, topic: str, since: datetime) -> None:
        super().__init__(
            f"{topic} no longer contains all events since {since}, and nothing was changed: read them from the archive "
            "with --archive"
        )


def backfill(
    spark: SparkSession,
    config: PipelineConfig,
    store: StatsStore,
    since: datetime,
    until: datetime,
    *,
    is_archived: bool,
) -> dict[str, int]:
    """Recompute the minutes of [since, until). Return the number of rows of each table."""
    began = milliseconds(datetime.now(UTC))
    positions = {
        queue: offset for topic, queue, offset in store.read("positions", PIPELINE) if topic == config.events_topic
    }
    rows = (
        _from_archive(spark, config, since, positions) if is_archived else _from_topic(spark, config, since, positions)
    )
    rows = rows.persist()
    try:
        repeated = classify_batches(batch_rows(rows), lambda _: set()).repeated
        first, end = milliseconds(since), milliseconds(until)
        minute = F.unix_millis("at")
        selected = exclude_batches(rows, repeated).where((minute >= first) & (minute < end))
        found: dict[str, list[Any]] = figures(selected, config.minutes)
    finally:
        rows.unpersist()
    if not store.replace_minutes(first, end, {name: found[name] for name in _TABLES}, after=began):
        raise BackfillConflict
    return {name: len(found[name]) for name in _TABLES}


def _from_topic(spark: SparkSession, config: PipelineConfig, since: datetime, positions: dict[str, int]) -> DataFrame:
    with config.connect() as client:
        if _is_truncated(client.queues(config.events_topic, at=since - _CLOCK_TOLERANCE, times=False)):
            raise SourceTruncated(config.events_topic, since)
    bounds: dict[str, Any] = {
        "startingTimestamp": str(milliseconds(since - _CLOCK_TOLERANCE)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    rows = config.events(spark, **bounds)
    return _already_counted(rows, positions)


def _is_truncated(queues: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether retention deleted all events of a broker from before the instant of `offsetAt`.

    Then events after the instant may be deleted as well. Retention deletes by age on each broker, so one queue with
    older events proves that no queue of the broker is truncated.
    """
    brokers: dict[str, list[Mapping[str, Any]]] = {}
    for queue in queues:
        brokers.setdefault(queue["queue"].rpartition(":")[0], []).append(queue)
    return any(
        any(queue["min"] for queue in of_broker)
        and not any((queue["offsetAt"] or 0) > queue["min"] for queue in of_broker)
        for of_broker in brokers.values()
    )


def _from_archive(spark: SparkSession, config: PipelineConfig, since: datetime, positions: dict[str, int]) -> DataFrame:
    paths = archive.hour_paths(config.archive_path, [config.events_topic], since - _CLOCK_TOLERANCE, datetime.now(UTC))
    if not paths:
        raise FileNotFoundError(f"{config.archive_path} has no messages of {config.events_topic} since {since}")
    messages = spark.read.option("basePath", str(config.archive_path)).parquet(*paths)
    return _already_counted(decode_messages(messages.withColumn("properties", F.to_json("properties"))), positions)


def _already_counted(rows: DataFrame, positions: dict[str, int]) -> DataFrame:
    """Return the rows that the live pipeline has counted, or all rows if it has no positions."""
    if not positions:
        return rows
    ends = F.create_map(*(F.lit(value) for item in positions.items() for value in item))
    return rows.where(F.col("batch_offset") < F.coalesce(ends[F.col("batch_queue")], F.lit(0)))
