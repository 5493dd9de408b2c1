"""Messages that do not get done: delivered often, or delivered long ago, and still not settled."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for them

from mqgate.core.events import EVENTS, Kind

__all__ = ["stuck"]

_SETTLED = [kind.value for kind in (Kind.ACKED, Kind.DEAD, Kind.SKIPPED, Kind.RETENTION_EXPIRED, Kind.FILTERED)]
_MESSAGE = ("topic", "group", "queue", "offset")


def stuck(events: DataFrame, groups: DataFrame, *, now_ms: int, deliveries: int, age_ms: int) -> DataFrame:
    """topic, group, queue, offset, at, id, client, delivery, stored_at, reason: what was told, and groups' positions.

    `groups` has topic, group, queue and committed: what lies below is done, told or not.
    """
    told = events.where((F.col("table") == EVENTS.name) & F.col("group").isNotNull() & F.col("offset").isNotNull())
    last = F.col("offset") + F.coalesce("count", F.lit(1)) - 1
    each = told.withColumn("offset", F.explode(F.sequence(F.col("offset"), last)))
    delivered = each.where(F.col("kind") == Kind.DELIVERED.value).groupBy(*_MESSAGE).agg(
        F.max("delivery").alias("delivery"),
        F.unix_millis(F.min("at")).alias("first_at"),
        F.max(F.struct("at", "client", "stored_at")).alias("last"),
    )  # fmt: skip
    settled = each.where(F.col("kind").isin(_SETTLED)).select(*_MESSAGE).distinct()
    stands = F.broadcast(groups.groupBy("topic", "group", "queue").agg(F.min("committed").alias("committed")))
    is_often, is_long = F.col("delivery") >= deliveries, F.lit(now_ms) - F.col("first_at") >= age_ms
    often = F.concat(F.lit("delivered "), F.col("delivery").cast("string"), F.lit(" times"))
    return (
        delivered.join(settled, list(_MESSAGE), "left_anti")
        .join(stands, ["topic", "group", "queue"], "left")
        .where((F.col("committed").isNull() | (F.col("offset") >= F.col("committed"))) & (is_often | is_long))
        .select(
            *_MESSAGE,
            F.unix_millis("last.at").alias("at"),
            F.lit("").alias("id"),
            F.coalesce("last.client", F.lit("")).alias("client"),
            "delivery",
            F.unix_millis("last.stored_at").alias("stored_at"),
            F.when(is_often, often).otherwise("delivered long ago, and not settled").alias("reason"),
        )
    )
