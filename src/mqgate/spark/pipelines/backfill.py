"""Minutes counted again, from what the topic or the archive still holds, in the place of what the tables say.

It counts exactly what the live pipeline has counted so far (up to the positions that stand in the tables), so that what
that counts next comes on top, once. If late events reach these minutes while it works, it has to be repeated.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for them

from mqgate.core.message import milliseconds
from mqgate.spark.pipelines import archive
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.decode import decode_messages
from mqgate.spark.pipelines.live import PIPELINE, classify_batches, exclude_batches, figures, told
from mqgate.stats.store import StatsStore

__all__ = ["BackfillConflict", "SourceTruncated", "backfill"]

_TABLES = ("traffic_minute", "latency_minute", "polls_minute", "lag_minute")
# A gateway's clock may be that much ahead without being put right.
_SLACK = timedelta(seconds=2)


class BackfillConflict(RuntimeError):
    """Late events came into these minutes meanwhile."""

    def __init__(self) -> None:
        super().__init__("the live pipeline counted late events into these minutes meanwhile: run it again")


class SourceTruncated(RuntimeError):
    """What the topic still holds would make less of the figures than they are."""

    def __init__(self, topic: str, since: datetime) -> None:
        super().__init__(
            f"{topic} no longer holds all that was told since {since}, and nothing was changed: count it from the "
            "archive, with --archive"
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
    """Count [since, until) again; the rows of each table."""
    began = milliseconds(datetime.now(UTC))
    positions = {
        queue: offset for topic, queue, offset in store.read("positions", PIPELINE) if topic == config.events_topic
    }
    rows = _archived(spark, config, since, positions) if is_archived else _logged(spark, config, since, positions)
    rows = rows.persist()
    try:
        repeated = classify_batches(told(rows), lambda _: set()).repeated
        first, end = milliseconds(since), milliseconds(until)
        minute = F.unix_millis("at")
        chosen = exclude_batches(rows, repeated).where((minute >= first) & (minute < end))
        found: dict[str, list[Any]] = figures(chosen, config.minutes)
    finally:
        rows.unpersist()
    if not store.refill(first, end, {name: found[name] for name in _TABLES}, after=began):
        raise BackfillConflict
    return {name: len(found[name]) for name in _TABLES}


def _logged(spark: SparkSession, config: PipelineConfig, since: datetime, positions: dict[str, int]) -> DataFrame:
    with config.connect() as client:
        if _is_forgotten(client.queues(config.events_topic, at=since - _SLACK, times=False)):
            raise SourceTruncated(config.events_topic, since)
    bounds: dict[str, Any] = {
        "startingTimestamp": str(milliseconds(since - _SLACK)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    rows = config.events(spark, **bounds)
    return _counted(rows, positions)


def _is_forgotten(queues: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a broker has nothing left of before the instant of `offsetAt`, and had: it may lack some of after it.

    Retention goes by age: one queue that reaches back speaks for those beside it that had nothing to hold.
    """
    brokers: dict[str, list[Mapping[str, Any]]] = {}
    for queue in queues:
        brokers.setdefault(queue["queue"].rpartition(":")[0], []).append(queue)
    return any(
        any(queue["min"] for queue in some) and not any((queue["offsetAt"] or 0) > queue["min"] for queue in some)
        for some in brokers.values()
    )


def _archived(spark: SparkSession, config: PipelineConfig, since: datetime, positions: dict[str, int]) -> DataFrame:
    paths = archive.hours(config.archive_path, [config.events_topic], since - _SLACK, datetime.now(UTC))
    if not paths:
        raise FileNotFoundError(f"{config.archive_path} has nothing of {config.events_topic} since {since}")
    messages = spark.read.option("basePath", str(config.archive_path)).parquet(*paths)
    return _counted(decode_messages(messages.withColumn("properties", F.to_json("properties"))), positions)


def _counted(rows: DataFrame, positions: dict[str, int]) -> DataFrame:
    """What the live pipeline has counted; all of it where there is none."""
    if not positions:
        return rows
    ends = F.create_map(*(F.lit(each) for pair in positions.items() for each in pair))
    return rows.where(F.col("batch_offset") < F.coalesce(ends[F.col("batch_queue")], F.lit(0)))
