"""Where the messages of a topic went, group by group: judged by offsets, explained by events.

    published = acked + dead + filtered + expired + skipped + pending      what must hold, and then the hour is clean
              + unwatched      before the group's first known position: nobody can tell, nobody asks
              + unknown        below committed, untold, and a gateway's own telling has a hole
              + missing        below committed, or gone from the log, and nothing explains it: it is listed

Offsets of a queue are dense, so the offsets between two instants are the messages stored between them, whoever
published them. An event only says what became of one.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for them

from mqgate.core.events import EVENTS, Kind

__all__ = ["DISPOSITIONS", "GROUPS", "OFFSETS", "PRESENT", "Reconciliation", "reconcile"]

# What is asked about: offsets of queues, [start, end).
OFFSETS = "topic STRING, queue STRING, start BIGINT, end BIGINT"
# Where groups stand, each client of a broadcast group for itself: `watched` is the first position ever seen of it.
GROUPS = "topic STRING, group STRING, client STRING, queue STRING, min BIGINT, committed BIGINT, watched BIGINT"
# What the log holds of these offsets; and, of copies to be found, what it holds before them.
PRESENT = "topic STRING, queue STRING, offset BIGINT, id STRING"
DISPOSITIONS = ("acked", "dead", "filtered", "expired", "skipped", "pending", "unwatched", "unknown", "missing")

_SETTLING = {
    Kind.ACKED: "acked",
    Kind.DEAD: "dead",
    Kind.FILTERED: "filtered",
    Kind.SKIPPED: "skipped",
    Kind.RETENTION_EXPIRED: "expired",
}
_PLACE = ("topic", "queue", "offset")
_SCOPE = ("topic", "group", "client")
_FINDING = (*_SCOPE, "queue", "offset", "finding", "id", "detail")


class Reconciliation(NamedTuple):
    """`summary`: topic, group, client, published, the fates, duplicates, late_acks. `findings`: one row each."""

    summary: DataFrame
    findings: DataFrame
    held: tuple[DataFrame, ...]

    def release(self) -> None:
        """Give back what Spark holds for them, once both are collected."""
        for frame in self.held:
            frame.unpersist()


def reconcile(
    offsets: DataFrame, groups: DataFrame, events: DataFrame, present: DataFrame, *, has_gaps: bool
) -> Reconciliation:
    """Judge the messages at these offsets by all that was told of them; `has_gaps`: not all may have been told."""
    told = events.where(F.col("table") == EVENTS.name)
    messages = _messages(offsets, told, present).persist()
    judged = _judged(messages, groups, _settled(offsets, groups, told), has_gaps=has_gaps).persist()
    copies = _copies(messages, _earlier(offsets, present))
    findings = _misfits(judged).unionByName(copies.withColumn("group", F.lit("")).withColumn("client", F.lit("")))
    copied = copies.groupBy("topic").agg(F.count("*").alias("copies"))
    summary = (
        judged.groupBy(*_SCOPE)
        .agg(
            F.count("*").alias("published"),
            *(F.count_if(F.col("fate") == fate).alias(fate) for fate in DISPOSITIONS),
            F.count_if(F.col("acks") > 1).alias("acked_again"),
            F.sum("late").alias("late_acks"),
        )
        .join(F.broadcast(copied), "topic", "left")
        .withColumn("duplicates", F.col("acked_again") + F.coalesce("copies", F.lit(0)))
    )
    columns = (*_SCOPE, "published", *DISPOSITIONS, "duplicates", "late_acks")
    return Reconciliation(summary.select(*columns), findings.select(*_FINDING), (judged, messages))


def _messages(offsets: DataFrame, told: DataFrame, present: DataFrame) -> DataFrame:
    """topic, queue, offset, id, is_present, is_told: every offset, what the log has there, whether it was announced."""
    every = offsets.where("end > start").select(
        "topic", "queue", F.explode(F.sequence(F.col("start"), F.col("end") - 1)).alias("offset")
    )
    there = present.groupBy(*_PLACE).agg(F.first("id").alias("there"))
    announced = told.where(F.col("kind") == Kind.PUBLISHED.value).groupBy(*_PLACE).agg(F.first("id").alias("announced"))
    return (
        every.join(there, list(_PLACE), "left")
        .join(announced, list(_PLACE), "left")
        .select(
            *_PLACE,
            F.coalesce("there", "announced").alias("id"),
            F.col("there").isNotNull().alias("is_present"),
            F.col("announced").isNotNull().alias("is_told"),
        )
    )


def _settled(offsets: DataFrame, groups: DataFrame, told: DataFrame) -> DataFrame:
    """topic, group, client, queue, offset; how often each was settled in which way. Ranges are taken apart."""
    kinds = [kind.value for kind in _SETTLING]
    # Of a broadcast group every client settles for itself; elsewhere it does not matter which one did.
    scopes = groups.groupBy("topic", "group").agg((F.max("client") != "").alias("is_broadcast"))
    bounds = F.broadcast(offsets.select("topic", "queue", "start", "end"))
    first = F.greatest("offset", "start")
    last = F.least(F.col("offset") + F.coalesce("count", F.lit(1)), F.col("end")) - 1
    rows = (
        told.where(F.col("kind").isin(kinds) & F.col("offset").isNotNull())
        .select("topic", "group", "client", "queue", "offset", "count", "kind", "outcome")
        .join(bounds, ["topic", "queue"])
        .where(first <= last)
        .join(F.broadcast(scopes), ["topic", "group"])
        .withColumn("client", F.when(F.col("is_broadcast"), F.col("client")).otherwise(""))
        .withColumn("offset", F.explode(F.sequence(first, last)))
    )
    return rows.groupBy(*_SCOPE, "queue", "offset").agg(
        F.count_if(F.col("kind") == Kind.ACKED.value).alias("acks"),
        F.count_if((F.col("kind") == Kind.ACKED.value) & (F.col("outcome") == "late_applied")).alias("late"),
        *(F.max(F.col("kind") == kind.value).alias(f"is_{name}") for kind, name in _SETTLING.items()),
    )


def _judged(messages: DataFrame, groups: DataFrame, settled: DataFrame, *, has_gaps: bool) -> DataFrame:
    """One row for every message and group: its fate, and what is odd about it."""
    return (
        messages.join(F.broadcast(groups), ["topic", "queue"])
        .join(settled, [*_SCOPE, "queue", "offset"], "left")
        .select(
            *_SCOPE,
            "queue",
            "offset",
            "id",
            "is_present",
            "committed",
            F.coalesce("is_expired", F.lit(False)).alias("is_expired"),
            _fate(has_gaps=has_gaps).alias("fate"),
            F.coalesce("acks", F.lit(0)).alias("acks"),
            F.coalesce("late", F.lit(0)).alias("late"),
        )
    )


def _fate(*, has_gaps: bool) -> Column:
    offset, committed = F.col("offset"), F.col("committed")
    fate = F.when(F.col("is_acked"), "acked")
    for name in ("dead", "filtered", "skipped"):
        fate = fate.when(F.col(f"is_{name}"), name)
    # A gateway that finds nothing at an offset takes it for expired; but retention takes what is below the first kept.
    is_taken = F.col("is_expired") & (offset >= F.col("min")) & ~F.col("is_present")
    return (
        fate.when(is_taken, "missing")
        .when(F.col("is_expired"), "expired")
        .when((offset >= committed) & (offset < F.col("min")), "expired")
        .when((offset >= committed) & ~F.col("is_present"), "missing")
        .when(offset >= committed, "pending")
        .when(F.col("watched").isNull() | (offset < F.col("watched")), "unwatched")
        .otherwise("unknown" if has_gaps else "missing")
    )


def _misfits(judged: DataFrame) -> DataFrame:
    """Messages that are missing, were acked again, or late."""
    is_lost = (F.col("fate") == "missing") & (F.col("is_expired") | (F.col("offset") >= F.col("committed")))
    lost = F.when(F.col("is_expired"), "no longer in the log, although retention has not come to it").otherwise(
        "not settled, and no longer in the log"
    )
    found = F.array_compact(
        F.array(
            F.when(is_lost, _finding("lost", lost)),
            F.when(
                (F.col("fate") == "missing") & ~is_lost,
                _finding(
                    "missing",
                    F.when(F.col("is_present"), "the group is past it, and nothing says that it was settled").otherwise(
                        "the group is past it, nothing says that it was settled, and it is no longer in the log"
                    ),
                ),
            ),
            F.when(
                F.col("acks") > 1,
                _finding(
                    "acked_again",
                    F.concat(F.lit("acked "), F.col("acks"), F.lit(" times: after a seek back or lost lease state")),
                ),
            ),
            F.when(
                F.col("late") > 0, _finding("late_ack", F.lit("acked after its lease had ended, before another got it"))
            ),
        )
    )
    return judged.select(*_SCOPE, "queue", "offset", "id", F.explode(found).alias("f")).select(
        *_SCOPE, "queue", "offset", "id", "f.finding", "f.detail"
    )


def _finding(name: str, detail: Column) -> Column:
    return F.struct(F.lit(name).alias("finding"), detail.alias("detail"))


def _earlier(offsets: DataFrame, present: DataFrame) -> DataFrame:
    """topic, queue, offset, id: what the log holds before these offsets."""
    starts = F.broadcast(offsets.select("topic", "queue", "start"))
    return present.join(starts, ["topic", "queue"]).where("offset < start").select(*_PLACE, "id")


def _copies(messages: DataFrame, earlier: DataFrame) -> DataFrame:
    """topic, queue, offset, id, finding, detail: messages whose id the log holds at an earlier place too."""
    place = F.struct("is_judged", "queue", "offset", "is_told")
    judged = messages.where("id IS NOT NULL AND is_present").withColumn("is_judged", F.lit(True))
    before = earlier.withColumns({"is_judged": F.lit(False), "is_told": F.lit(True)})
    columns = ("topic", "id", "is_judged", "queue", "offset", "is_told")
    same = (
        judged.select(*columns)
        .unionByName(before.select(*columns))
        .groupBy("topic", "id")
        .agg(F.sort_array(F.collect_list(place)).alias("places"))
        .where(F.size("places") > 1)
    )
    first = F.col("places")[0]
    told = F.when(F.col("copy.is_told"), "published again, as after an answer that never came").otherwise(
        "no gateway told of this copy"
    )
    copies = same.select(
        "topic", "id", first.alias("first"), F.explode(F.slice("places", 2, F.size("places") - 1)).alias("copy")
    )
    return copies.where("copy.is_judged").select(
        "topic",
        "copy.queue",
        "copy.offset",
        "id",
        F.lit("duplicate").alias("finding"),
        F.concat(
            F.lit("the same id as "),
            F.col("first.queue"),
            F.lit(" "),
            F.col("first.offset").cast("string"),
            F.lit(": "),
            told,
        ).alias("detail"),
    )
