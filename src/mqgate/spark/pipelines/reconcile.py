"""Reconciliation: the disposition of each message of a topic for each group.

    published = acked + dead + filtered + expired + skipped + pending      in a clean hour
              + unwatched      stored before the first known position of the group
              + unknown        below the committed offset, without an event, and the events of a gateway have a gap
              + missing        below the committed offset or no longer in the log, without an explanation: a finding

The offsets of a queue are dense, so the offsets between two instants are exactly the messages stored between them. An
event only explains the disposition of a message.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from mqgate.core.events import EVENTS, Kind

__all__ = ["DISPOSITIONS", "GROUPS", "OFFSETS", "PRESENT", "Reconciliation", "reconcile"]

# The offsets to reconcile, [start, end).
OFFSETS = "topic STRING, queue STRING, start BIGINT, end BIGINT"
# Positions of groups, and of each client of a broadcast group. `watched` is the first sampled position.
GROUPS = "topic STRING, group STRING, client STRING, queue STRING, min BIGINT, committed BIGINT, watched BIGINT"
# Messages in the log at these offsets, and earlier ones that are compared to find copies.
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
    """Result of a reconciliation.

    `summary` has topic, group, client, published, DISPOSITIONS, duplicates, late_acks. `findings` has one row each.
    """

    summary: DataFrame
    findings: DataFrame
    cached: tuple[DataFrame, ...]

    def release(self) -> None:
        """Release the cached frames after both results are collected."""
        for frame in self.cached:
            frame.unpersist()


def reconcile(
    offsets: DataFrame, groups: DataFrame, events: DataFrame, present: DataFrame, *, has_gaps: bool
) -> Reconciliation:
    """Reconcile the messages at these offsets with their events. `has_gaps`: the events may be incomplete."""
    events = events.where(F.col("table") == EVENTS.name)
    messages = _messages(offsets, events, present).persist()
    messages_by_group = _with_dispositions(
        messages, groups, _settled(offsets, groups, events), has_gaps=has_gaps
    ).persist()
    copies = _copies(messages, _earlier(offsets, present))
    findings = _settlement_findings(messages_by_group).unionByName(
        copies.withColumn("group", F.lit("")).withColumn("client", F.lit(""))
    )
    copied = copies.groupBy("topic").agg(F.count("*").alias("copies"))
    summary = (
        messages_by_group.groupBy(*_SCOPE)
        .agg(
            F.count("*").alias("published"),
            *(F.count_if(F.col("disposition") == disposition).alias(disposition) for disposition in DISPOSITIONS),
            F.count_if(F.col("acks") > 1).alias("acked_again"),
            F.sum("late").alias("late_acks"),
        )
        .join(F.broadcast(copied), "topic", "left")
        .withColumn("duplicates", F.col("acked_again") + F.coalesce("copies", F.lit(0)))
    )
    columns = (*_SCOPE, "published", *DISPOSITIONS, "duplicates", "late_acks")
    return Reconciliation(summary.select(*columns), findings.select(*_FINDING), (messages_by_group, messages))


def _messages(offsets: DataFrame, events: DataFrame, present: DataFrame) -> DataFrame:
    """Return topic, queue, offset, id, is_present (in the log) and is_reported (by an event) of every offset."""
    every = offsets.where("end > start").select(
        "topic", "queue", F.explode(F.sequence(F.col("start"), F.col("end") - 1)).alias("offset")
    )
    stored = present.groupBy(*_PLACE).agg(F.first("id").alias("stored"))
    reported = events.where(F.col("kind") == Kind.PUBLISHED.value).groupBy(*_PLACE).agg(F.first("id").alias("reported"))
    return (
        every.join(stored, list(_PLACE), "left")
        .join(reported, list(_PLACE), "left")
        .select(
            *_PLACE,
            F.coalesce("stored", "reported").alias("id"),
            F.col("stored").isNotNull().alias("is_present"),
            F.col("reported").isNotNull().alias("is_reported"),
        )
    )


def _settled(offsets: DataFrame, groups: DataFrame, events: DataFrame) -> DataFrame:
    """Return topic, group, client, queue, offset and the settlements of each message. Ranges are expanded."""
    kinds = [kind.value for kind in _SETTLING]
    # Clients of a broadcast group settle separately. In other groups the client does not matter.
    scopes = groups.groupBy("topic", "group").agg((F.max("client") != "").alias("is_broadcast"))
    bounds = F.broadcast(offsets.select("topic", "queue", "start", "end"))
    first = F.greatest("offset", "start")
    last = F.least(F.col("offset") + F.coalesce("count", F.lit(1)), F.col("end")) - 1
    rows = (
        events.where(F.col("kind").isin(kinds) & F.col("offset").isNotNull())
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


def _with_dispositions(messages: DataFrame, groups: DataFrame, settled: DataFrame, *, has_gaps: bool) -> DataFrame:
    """Return one row for each message and group with its disposition."""
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
            _disposition(has_gaps=has_gaps).alias("disposition"),
            F.coalesce("acks", F.lit(0)).alias("acks"),
            F.coalesce("late", F.lit(0)).alias("late"),
        )
    )


def _disposition(*, has_gaps: bool) -> Column:
    offset, committed = F.col("offset"), F.col("committed")
    disposition = F.when(F.col("is_acked"), "acked")
    for name in ("dead", "filtered", "skipped"):
        disposition = disposition.when(F.col(f"is_{name}"), name)
    # A gateway reports a missing message as expired. But retention only deletes below the first retained offset.
    is_lost = F.col("is_expired") & (offset >= F.col("min")) & ~F.col("is_present")
    return (
        disposition.when(is_lost, "missing")
        .when(F.col("is_expired"), "expired")
        .when((offset >= committed) & (offset < F.col("min")), "expired")
        .when((offset >= committed) & ~F.col("is_present"), "missing")
        .when(offset >= committed, "pending")
        .when(F.col("watched").isNull() | (offset < F.col("watched")), "unwatched")
        .otherwise("unknown" if has_gaps else "missing")
    )


def _settlement_findings(messages_by_group: DataFrame) -> DataFrame:
    """Return findings of messages that are missing, or were acked repeatedly or late."""
    is_lost = (F.col("disposition") == "missing") & (F.col("is_expired") | (F.col("offset") >= F.col("committed")))
    lost = F.when(F.col("is_expired"), "no longer in the log, although retention has not reached it").otherwise(
        "not settled, and no longer in the log"
    )
    found = F.array_compact(
        F.array(
            F.when(is_lost, _finding("lost", lost)),
            F.when(
                (F.col("disposition") == "missing") & ~is_lost,
                _finding(
                    "missing",
                    F.when(F.col("is_present"), "the group has passed it, and no event reports a settlement").otherwise(
                        "the group has passed it, no event reports a settlement, and it is no longer in the log"
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
                F.col("late") > 0,
                _finding("late_ack", F.lit("acked after its lease had expired, before it was granted again")),
            ),
        )
    )
    return messages_by_group.select(*_SCOPE, "queue", "offset", "id", F.explode(found).alias("f")).select(
        *_SCOPE, "queue", "offset", "id", "f.finding", "f.detail"
    )


def _finding(name: str, detail: Column) -> Column:
    return F.struct(F.lit(name).alias("finding"), detail.alias("detail"))


def _earlier(offsets: DataFrame, present: DataFrame) -> DataFrame:
    """Return topic, queue, offset, id of the messages in the log before these offsets."""
    starts = F.broadcast(offsets.select("topic", "queue", "start"))
    return present.join(starts, ["topic", "queue"]).where("offset < start").select(*_PLACE, "id")


def _copies(messages: DataFrame, earlier: DataFrame) -> DataFrame:
    """Return topic, queue, offset, id, finding, detail of messages whose id exists at an earlier place too."""
    place = F.struct("is_selected", "queue", "offset", "is_reported")
    selected = messages.where("id IS NOT NULL AND is_present").withColumn("is_selected", F.lit(True))
    before = earlier.withColumns({"is_selected": F.lit(False), "is_reported": F.lit(True)})
    columns = ("topic", "id", "is_selected", "queue", "offset", "is_reported")
    same = (
        selected.select(*columns)
        .unionByName(before.select(*columns))
        .groupBy("topic", "id")
        .agg(F.sort_array(F.collect_list(place)).alias("places"))
        .where(F.size("places") > 1)
    )
    first = F.col("places")[0]
    cause = F.when(F.col("copy.is_reported"), "published again, as after a lost response").otherwise(
        "no event reports this copy"
    )
    copies = same.select(
        "topic", "id", first.alias("first"), F.explode(F.slice("places", 2, F.size("places") - 1)).alias("copy")
    )
    return copies.where("copy.is_selected").select(
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
            cause,
        ).alias("detail"),
    )
