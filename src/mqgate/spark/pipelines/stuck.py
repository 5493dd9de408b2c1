"""Stuck messages: delivered often or long ago, and still not settled."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from mqgate.core.events import EVENTS, Kind

__all__ = ["stuck"]

_SETTLED = [kind.value for kind in (Kind.ACKED, Kind.DEAD, Kind.SKIPPED, Kind.RETENTION_EXPIRED, Kind.FILTERED)]
# Longer settled ranges are not expanded: seeks and retention may skip billions of messages.
_MAX_EXPANDED_RUN = 10_000
_QUEUE = ("topic", "group", "queue")
_MESSAGE = (*_QUEUE, "offset")


def stuck(events: DataFrame, groups: DataFrame, *, now_ms: int, deliveries: int, age_ms: int) -> DataFrame:
    """Return topic, group, queue, offset, at, id, client, delivery, stored_at, reason of stuck messages.

    `groups` has topic, group, queue and committed. Messages below the committed offset are settled.
    """
    group_events = events.where(
        (F.col("table") == EVENTS.name) & F.col("group").isNotNull() & F.col("offset").isNotNull()
    )
    size, is_settled = F.coalesce("count", F.lit(1)), F.col("kind").isin(_SETTLED)
    delivered = group_events.where(F.col("kind") == Kind.DELIVERED.value).groupBy(*_MESSAGE).agg(
        F.max("delivery").alias("delivery"),
        F.unix_millis(F.min("at")).alias("first_at"),
        F.max(F.struct("at", "client", "stored_at")).alias("last"),
    )  # fmt: skip
    last = F.col("offset") + size - 1
    expanded = group_events.where(is_settled & (size <= _MAX_EXPANDED_RUN)).withColumn(
        "offset", F.explode(F.sequence("offset", last))
    )
    settled = expanded.select(*_MESSAGE).distinct()
    ranges = group_events.where(is_settled & (size > _MAX_EXPANDED_RUN)).select(
        *_QUEUE, F.col("offset").alias("first"), last.alias("last")
    )
    is_within = F.col("one.offset").between(F.col("many.first"), F.col("many.last"))
    is_same = [F.col(f"one.{name}") == F.col(f"many.{name}") for name in _QUEUE]
    committed = F.broadcast(groups.groupBy(*_QUEUE).agg(F.min("committed").alias("committed")))
    is_often, is_long = F.col("delivery") >= deliveries, F.lit(now_ms) - F.col("first_at") >= age_ms
    often = F.concat(F.lit("delivered "), F.col("delivery").cast("string"), F.lit(" times"))
    return (
        delivered.join(settled, list(_MESSAGE), "left_anti")
        .join(committed, list(_QUEUE), "left")
        .where((F.col("committed").isNull() | (F.col("offset") >= F.col("committed"))) & (is_often | is_long))
        .alias("one")
        .join(ranges.alias("many"), [*is_same, is_within], "left_anti")
        .select(
            *_MESSAGE,
            F.unix_millis("last.at").alias("at"),
            F.lit("").alias("id"),
            F.coalesce("last.client", F.lit("")).alias("client"),
            "delivery",
            F.unix_millis("last.stored_at").alias("stored_at"),
            F.when(is_often, often).otherwise("delivered long ago and not settled").alias("reason"),
        )
    )
