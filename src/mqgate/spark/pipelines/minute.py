"""Figures per minute: traffic, latency, polls and lag.

The functions need no state, because the store adds their results. A late event is counted in the minute in which it
happened. Only an event older than the retention is counted as late, in the minute in which it arrived.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from mqgate.core.events import EVENTS, LAG, POLLS, Kind
from mqgate.stats.buckets import MAX_BUCKET

__all__ = ["in_time", "lag", "late", "latency", "polls", "traffic"]

_MINUTE_MS = 60_000
_MAX_AHEAD_MS = 3_600_000


def in_time(rows: DataFrame, kept_ms: int) -> DataFrame:
    """Return the rows within the retention, relative to their store time, with their minute."""
    return rows.withColumn("minute", _minute("at")).where(_is_in_time(kept_ms))


def late(rows: DataFrame, kept_ms: int) -> DataFrame:
    """Return at, topic, kind, n: rows that are too old or in the future, by the minute of arrival.

    The kind of polls and of lag samples is the name of their table.
    """
    known = rows.where(F.col("table").isin(EVENTS.name, POLLS.name, LAG.name)).withColumn("minute", _minute("at"))
    return (
        known.where(~F.coalesce(_is_in_time(kept_ms), F.lit(False)))
        .groupBy(_minute("batch_at").alias("at"), _text("topic"), F.coalesce("kind", "table").alias("kind"))
        .agg(_count().alias("n"))
        .select("at", "topic", "kind", "n")
    )


def traffic(rows: DataFrame) -> DataFrame:
    """Return at, topic, kind, producer, group, client, outcome; n, bytes, redelivered."""
    is_again = (F.col("kind") == Kind.DELIVERED.value) & (F.col("delivery") > 1)
    keys = ("topic", "kind", "producer", "group", "client", "outcome")
    return (
        rows.where(F.col("table") == EVENTS.name)
        .groupBy(F.col("minute").alias("at"), *map(_text, keys))
        .agg(
            _count().alias("n"),
            F.sum(F.coalesce("bytes", F.lit(0))).alias("bytes"),
            F.sum(F.when(is_again, F.coalesce("count", F.lit(1))).otherwise(0)).alias("redelivered"),
        )
        .select("at", *keys, "n", "bytes", "redelivered")
    )


def latency(rows: DataFrame) -> DataFrame:
    """Return at, topic, group, measure, bucket; n.

    The measures are publish to first delivery, publish to ack, and delivery to ack.
    """
    is_first = (F.col("kind") == Kind.DELIVERED.value) & (F.col("delivery") == 1)
    is_ack = F.col("kind") == Kind.ACKED.value
    measures = F.array(
        F.struct(F.lit("delivery").alias("measure"), F.when(is_first, _since("stored_at")).alias("ms")),
        F.struct(F.lit("ack").alias("measure"), F.when(is_ack, _since("stored_at")).alias("ms")),
        F.struct(F.lit("work").alias("measure"), F.when(is_ack, _since("granted_at")).alias("ms")),
    )
    return (
        rows.where((F.col("table") == EVENTS.name) & (is_first | is_ack))
        .select("minute", _text("topic"), _text("group"), "count", F.explode(measures).alias("m"))
        .where("m.ms IS NOT NULL")
        .groupBy(
            F.col("minute").alias("at"), "topic", "group", F.col("m.measure"), _bucket(F.col("m.ms")).alias("bucket")
        )
        .agg(_count().alias("n"))
        .select("at", "topic", "group", "measure", "bucket", "n")
    )


def polls(rows: DataFrame) -> DataFrame:
    """Return at, topic, group, client, outcome; n."""
    keys = ("topic", "group", "client", "outcome")
    return (
        rows.where(F.col("table") == POLLS.name)
        .groupBy(F.col("minute").alias("at"), *map(_text, keys))
        .agg(_count().alias("n"))
        .select("at", *keys, "n")
    )


def lag(rows: DataFrame) -> DataFrame:
    """Return at, topic, group, client, queue; the last sample of each minute."""
    keys = ("topic", "group", "client", "queue")
    values = ("min", "max", "committed", "ready", "leased", "waiting")
    sample = F.struct(F.unix_millis("at").alias("sampled_at"), *values, F.unix_millis("oldest_at").alias("oldest_at"))
    return (
        rows.where(F.col("table") == LAG.name)
        .groupBy(F.col("minute"), *map(_text, keys))
        .agg(F.max(sample).alias("last"))
        .select(F.col("minute").alias("at"), *keys, "last.*")
    )


def _minute(column: str) -> Column:
    ms = F.unix_millis(column)
    return ms - F.pmod(ms, F.lit(_MINUTE_MS))


def _is_in_time(kept_ms: int) -> Column:
    stored = F.unix_millis("batch_at")
    return F.col("minute").between(stored - kept_ms, stored + _MAX_AHEAD_MS)


def _count() -> Column:
    return F.sum(F.coalesce("count", F.lit(1)))


def _text(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit("")).alias(name)


def _since(column: str) -> Column:
    return F.greatest(F.unix_millis("at") - F.unix_millis(column), F.lit(0))


def _bucket(ms: Column) -> Column:
    """Return the same bucket as `stats.buckets.bucket_of`: the bit length of ms*ms - 1."""
    bounded = F.least(ms, F.lit(1 << 30))
    return F.when(ms <= 1, 0).otherwise(F.least(F.length(F.bin(bounded * bounded - 1)), F.lit(MAX_BUCKET)))
