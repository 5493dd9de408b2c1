"""The proof: what it finds, what it explains, and what it does not call lost."""

from typing import Any

import pytest
from event_batches import NOON_MS, Teller, event, raw
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from mqgate.spark.pipelines.decode import SCHEMA, decode
from mqgate.spark.pipelines.reconcile import GROUPS, OFFSETS, PRESENT, reconcile
from mqgate.spark.pipelines.stuck import stuck

TOPIC, QUEUE = "orders", "local:0"


def happened(spark: SparkSession, *events: dict[str, Any]) -> DataFrame:
    """Decoded events, of one queue unless they say."""
    found = decode(raw(*Teller().batch([{"queue": QUEUE, **each} for each in events])))
    return spark.createDataFrame([tuple(row.values()) for row in found.to_pylist()], from_arrow_schema(SCHEMA))


def published(*offsets: int) -> list[dict[str, Any]]:
    return [event("published", offset=offset, id=f"id-{offset}") for offset in offsets]


def settled(kind: str, offset: int, group: str = "billing", **more: Any) -> dict[str, Any]:
    return event(kind, offset=offset, group=group, **more)


def judge(
    spark: SparkSession,
    events: list[dict[str, Any]],
    *,
    end: int = 10,
    committed: int = 10,
    gone: tuple[int, ...] = (),
    copies: dict[int, str] | None = None,
    watched: int | None = 0,
    low: int = 0,
    is_dark: bool = False,
) -> tuple[Row, list[tuple[str, int]]]:
    present = [
        (TOPIC, QUEUE, offset, (copies or {}).get(offset, f"id-{offset}"))
        for offset in range(end)
        if offset not in gone
    ]
    judged = reconcile(
        spark.createDataFrame([(TOPIC, QUEUE, 0, end)], OFFSETS),
        spark.createDataFrame([(TOPIC, "billing", "", QUEUE, low, committed, watched)], GROUPS),
        happened(spark, *events),
        spark.createDataFrame(present, PRESENT),
        is_dark=is_dark,
    )
    (summary,) = judged.summary.collect()
    findings = sorted((row.finding, row.offset) for row in judged.findings.collect())
    judged.release()
    counts = summary.asDict()
    fates = ("acked", "dead", "filtered", "expired", "skipped", "pending", "unwatched", "unknown", "missing")
    assert counts["published"] == sum(counts[fate] for fate in fates) == end
    return summary, findings


def test_a_clean_hour_is_clean(spark: SparkSession) -> None:
    """Every way that a message can go, ranges taken apart; messages above committed are pending, or acked already."""
    events = [
        *published(*range(10)),
        settled("acked", 0),
        settled("dead", 1, id="id-1"),
        settled("filtered", 2, count=2),
        settled("skipped", 4, count=1),
        settled("retention_expired", 5),
        settled("acked", 6),
        settled("acked", 8),
        settled("delivered", 9, delivery=1),
    ]

    summary, findings = judge(spark, events, committed=7)

    assert (summary.acked, summary.dead, summary.filtered, summary.skipped, summary.expired) == (3, 1, 2, 1, 1)
    assert (summary.pending, summary.missing, summary.unknown) == (2, 0, 0)
    assert findings == []


@pytest.mark.parametrize(
    ("circumstances", "fate", "finding"),
    [
        ({}, "missing", ("missing", 4)),
        ({"is_dark": True}, "unknown", None),
        ({"watched": 5}, "unwatched", None),
        ({"watched": None}, "unwatched", None),
        ({"committed": 4}, "pending", None),
        ({"committed": 4, "gone": (4,)}, "missing", ("lost", 4)),
        ({"committed": 4, "gone": (4,), "low": 5}, "expired", None),
        ({"gone": (4,)}, "missing", ("missing", 4)),
    ],
)
def test_a_message_that_nobody_settled(
    spark: SparkSession, circumstances: dict[str, Any], fate: str, finding: tuple[str, int] | None
) -> None:
    """Below committed it is missing, unless there is a hole in what was told, or nobody watched; above, it is pending.

    Unless somebody deleted it behind the gateway's back.
    """
    others = [settled("acked", offset) for offset in range(10) if offset != 4]

    summary, findings = judge(spark, [*published(*range(10)), *others], **circumstances)

    counts = summary.asDict()
    assert {name: counts[name] for name in ("acked", fate)} == {"acked": 9, fate: 1}
    assert findings == ([finding] if finding else [])


@pytest.mark.parametrize(("low", "fate", "finding"), [(5, "expired", []), (0, "missing", [("lost", 4)])])
def test_what_a_gateway_takes_for_expired_must_lie_below_what_is_kept(
    spark: SparkSession, low: int, fate: str, finding: list[Any]
) -> None:
    """It finds nothing there either way; but retention does not take a message out of the middle."""
    others = [settled("acked", offset) for offset in range(10) if offset != 4]

    summary, findings = judge(spark, [*others, settled("retention_expired", 4)], gone=(4,), low=low)

    assert (summary.acked, summary.asDict()[fate]) == (9, 1)
    assert findings == finding


def test_a_late_ack_a_second_ack_and_a_copy_are_listed_and_explained(spark: SparkSession) -> None:
    """None of them is a loss, so the hour stays clean; but whoever asks finds them."""
    events = [
        *published(0, 1, 2),
        settled("acked", 0, outcome="late_applied"),
        settled("acked", 1),
        settled("acked", 1),
        settled("acked", 2),
        settled("acked", 3),
    ]

    summary, findings = judge(spark, events, end=4, committed=4, copies={3: "id-2"})

    assert (summary.missing, summary.late_acks, summary.duplicates) == (0, 1, 2)
    assert findings == [("acked_again", 1), ("duplicate", 3), ("late_ack", 0)]


def test_clients_of_a_broadcast_group_are_judged_each_for_itself(spark: SparkSession) -> None:
    """What one has acked says nothing about the other."""
    groups = [(TOPIC, "caches", client, QUEUE, 0, 2, 0) for client in ("web-1", "web-2")]
    events = [settled("acked", offset, "caches", client="web-1") for offset in (0, 1)]

    judged = reconcile(
        spark.createDataFrame([(TOPIC, QUEUE, 0, 2)], OFFSETS),
        spark.createDataFrame(groups, GROUPS),
        happened(spark, *events),
        spark.createDataFrame([(TOPIC, QUEUE, offset, f"id-{offset}") for offset in (0, 1)], PRESENT),
        is_dark=False,
    )

    assert {row.client: (row.acked, row.missing) for row in judged.summary.collect()} == {
        "web-1": (2, 0),
        "web-2": (0, 2),
    }


def test_messages_that_do_not_get_done_are_stuck(spark: SparkSession) -> None:
    """Delivered often, or long ago; not those that were settled, told or not."""
    hour = 3_600_000
    events = [
        *(settled("delivered", 0, delivery=n, at=NOON_MS - 60_000) for n in (1, 2, 3, 4, 5)),
        settled("delivered", 1, delivery=1, at=NOON_MS - 2 * hour, client="c1"),
        settled("delivered", 2, delivery=1, at=NOON_MS - 60_000),
        settled("delivered", 3, delivery=9, at=NOON_MS - 2 * hour),
        settled("acked", 3),
        settled("delivered", 4, "mails", delivery=9),
    ]
    groups = spark.createDataFrame(
        [(TOPIC, "billing", "", QUEUE, 0, 0, 0), (TOPIC, "mails", "", QUEUE, 0, 5, 0)], GROUPS
    )

    found = stuck(happened(spark, *events), groups, now_ms=NOON_MS, deliveries=5, age_ms=hour).collect()

    assert sorted((row.group, row.offset, row.delivery, row.client) for row in found) == [
        ("billing", 0, 5, ""),
        ("billing", 1, 1, "c1"),
    ]
