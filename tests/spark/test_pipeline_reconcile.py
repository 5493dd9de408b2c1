"""The reconciliation of frames: dispositions, findings, and explanations."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from event_batches import NOON_MS, GatewayEvents, event, raw
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from mqgate.spark.pipelines.decode import SCHEMA, decode
from mqgate.spark.pipelines.reconcile import DISPOSITIONS, GROUPS, OFFSETS, PRESENT, reconcile
from mqgate.spark.pipelines.stuck import stuck

TOPIC, QUEUE = "orders", "local:0"


class Case(NamedTuple):
    """The events of ten messages (or of the given number), the messages in the log, and the position of the group."""

    events: list[dict[str, Any]]
    start: int = 0
    end: int = 10
    committed: int = 10
    gone: tuple[int, ...] = ()
    copies: Mapping[int, str] = {}
    watched: int | None = 0
    low: int = 0
    clients: tuple[str, ...] = ("",)


class Reconciliation(NamedTuple):
    """Of a case: a summary for each client of its group, and what was found."""

    summaries: list[Row]
    findings: list[tuple[str, int]]


def happened(spark: SparkSession, *events: dict[str, Any]) -> DataFrame:
    """Decoded events, of one queue unless they say."""
    found = decode(raw(*GatewayEvents().batch([{"queue": QUEUE, **event} for event in events])))
    return spark.createDataFrame([tuple(row.values()) for row in found.to_pylist()], from_arrow_schema(SCHEMA))


def published(*offsets: int) -> list[dict[str, Any]]:
    return [event("published", offset=offset, id=f"id-{offset}") for offset in offsets]


def settled(kind: str, offset: int, group: str = "billing", **more: Any) -> dict[str, Any]:
    return event(kind, offset=offset, group=group, **more)


OTHERS = [settled("acked", offset) for offset in range(10) if offset != 4]
UNSETTLED = Case([*published(*range(10)), *OTHERS])
TAKEN_FOR_EXPIRED = Case([*OTHERS, settled("retention_expired", 4)], gone=(4,))
CASES = {
    "all ways": Case(
        [
            *published(*range(10)),
            settled("acked", 0),
            settled("dead", 1, id="id-1"),
            settled("filtered", 2, count=2),
            settled("skipped", 4, count=1),
            settled("retention_expired", 5),
            settled("acked", 6),
            settled("acked", 8),
            settled("delivered", 9, delivery=1),
        ],
        committed=7,
    ),
    "passed": UNSETTLED,
    "watched later": UNSETTLED._replace(watched=5),
    "never watched": UNSETTLED._replace(watched=None),
    "to come": UNSETTLED._replace(committed=4),
    "deleted": UNSETTLED._replace(committed=4, gone=(4,)),
    "too old": UNSETTLED._replace(committed=4, gone=(4,), low=5),
    "passed and deleted": UNSETTLED._replace(gone=(4,)),
    "reported as expired": TAKEN_FOR_EXPIRED._replace(low=5),
    "reported as expired, but deleted": TAKEN_FOR_EXPIRED,
    "oddities": Case(
        [
            *published(0, 1, 2),
            settled("acked", 0, outcome="late_applied"),
            settled("acked", 1),
            settled("acked", 1),
            settled("acked", 2),
            settled("acked", 3),
        ],
        end=4,
        committed=4,
        copies={3: "id-2"},
    ),
    "copies of before": Case(
        [*published(*range(10)), *(settled("acked", offset) for offset in range(10))],
        start=5,
        copies={1: "id-0", 7: "id-2"},
    ),
    "broadcast": Case(
        [settled("acked", offset, client="web-1") for offset in (0, 1)], end=2, committed=2, clients=("web-1", "web-2")
    ),
}


def judge(spark: SparkSession, cases: Mapping[str, Case], *, has_gaps: bool) -> dict[str, Reconciliation]:
    """All cases at once, which takes no longer than one: each has a topic of its own."""
    groups = [
        (topic, "billing", client, QUEUE, case.low, case.committed, case.watched)
        for topic, case in cases.items()
        for client in case.clients
    ]
    present = [
        (topic, QUEUE, offset, case.copies.get(offset, f"id-{offset}"))
        for topic, case in cases.items()
        for offset in range(case.end)
        if offset not in case.gone
    ]
    reconciled = reconcile(
        spark.createDataFrame([(topic, QUEUE, case.start, case.end) for topic, case in cases.items()], OFFSETS),
        spark.createDataFrame(groups, GROUPS),
        happened(spark, *({**event, "topic": topic} for topic, case in cases.items() for event in case.events)),
        spark.createDataFrame(present, PRESENT),
        has_gaps=has_gaps,
    )
    summaries, findings = reconciled.summary.collect(), reconciled.findings.collect()
    reconciled.release()
    return {
        topic: Reconciliation(
            [row for row in summaries if row.topic == topic],
            sorted((row.finding, row.offset) for row in findings if row.topic == topic),
        )
        for topic in cases
    }


@pytest.fixture(scope="module")
def reconciled(spark: SparkSession) -> dict[str, Reconciliation]:
    """The cases whose events are complete."""
    return judge(spark, CASES, has_gaps=False)


def test_every_message_has_one_disposition(reconciled: dict[str, Reconciliation]) -> None:
    """For each client, the dispositions add up to the published messages."""
    sums = {
        topic: [sum(row[fate] for fate in DISPOSITIONS) for row in result.summaries]
        for topic, result in reconciled.items()
    }

    assert sums == {topic: [row.published for row in result.summaries] for topic, result in reconciled.items()}
    assert sums == {topic: [case.end - case.start] * len(case.clients) for topic, case in CASES.items()}


def test_a_fully_explained_hour_is_clean(reconciled: dict[str, Reconciliation]) -> None:
    """It contains every disposition, including ranges and messages above the committed offset."""
    (summary,), findings = reconciled["all ways"]

    assert (summary.acked, summary.dead, summary.filtered, summary.skipped, summary.expired) == (3, 1, 2, 1, 1)
    assert (summary.pending, summary.missing, summary.unknown) == (2, 0, 0)
    assert findings == []


@pytest.mark.parametrize(
    ("case", "fate", "found"),
    [
        ("passed", "missing", [("missing", 4)]),
        ("watched later", "unwatched", []),
        ("never watched", "unwatched", []),
        ("to come", "pending", []),
        ("deleted", "missing", [("lost", 4)]),
        ("too old", "expired", []),
        ("passed and deleted", "missing", [("missing", 4)]),
    ],
)
def test_an_unsettled_message_is_missing_or_pending(
    reconciled: dict[str, Reconciliation], case: str, fate: str, found: list[tuple[str, int]]
) -> None:
    """Below committed it is missing, unless it is unwatched. Above it is pending, unless it was deleted."""
    (summary,), findings = reconciled[case]

    assert (summary.acked, summary[fate]) == (9, 1)
    assert findings == found


def test_an_unsettled_message_is_unknown_if_events_have_gaps(spark: SparkSession) -> None:
    """The same message is missing if the events are complete."""
    (summary,), findings = judge(spark, {"passed": UNSETTLED}, has_gaps=True)["passed"]

    assert (summary.published, summary.acked, summary.unknown, summary.missing) == (10, 9, 1, 0)
    assert findings == []


@pytest.mark.parametrize(
    ("case", "fate", "found"),
    [("reported as expired", "expired", []), ("reported as expired, but deleted", "missing", [("lost", 4)])],
)
def test_an_expired_message_above_the_first_retained_offset_is_missing(
    reconciled: dict[str, Reconciliation], case: str, fate: str, found: list[tuple[str, int]]
) -> None:
    """A gateway reports any missing message as expired, but retention deletes only from the beginning."""
    (summary,), findings = reconciled[case]

    assert (summary.acked, summary[fate]) == (9, 1)
    assert findings == found


def test_a_late_ack_a_second_ack_and_a_copy_are_findings(reconciled: dict[str, Reconciliation]) -> None:
    """They are not losses, so the hour stays clean, but operators can find them."""
    (summary,), findings = reconciled["oddities"]

    assert (summary.missing, summary.late_acks, summary.duplicates) == (0, 1, 2)
    assert findings == [("acked_again", 1), ("duplicate", 3), ("late_ack", 0)]


def test_a_copy_of_an_earlier_message_is_found(reconciled: dict[str, Reconciliation]) -> None:
    """A publish without response at the end of an hour is repeated in the next hour."""
    (summary,), findings = reconciled["copies of before"]

    assert (summary.published, summary.acked, summary.duplicates) == (5, 5, 1)
    assert findings == [("duplicate", 7)]


def test_clients_of_a_broadcast_group_are_reconciled_separately(reconciled: dict[str, Reconciliation]) -> None:
    """An ack of one client does not settle the message for another client."""
    summaries = reconciled["broadcast"].summaries

    assert {row.client: (row.acked, row.missing) for row in summaries} == {"web-1": (2, 0), "web-2": (0, 2)}


def test_unsettled_messages_are_stuck(spark: SparkSession) -> None:
    """They were delivered often or long ago. Settled messages are not stuck."""
    hour = 3_600_000
    events = [
        *(settled("delivered", 0, delivery=n, at=NOON_MS - 60_000) for n in (1, 2, 3, 4, 5)),
        settled("delivered", 1, delivery=1, at=NOON_MS - 2 * hour, client="c1"),
        settled("delivered", 2, delivery=1, at=NOON_MS - 60_000),
        settled("delivered", 3, delivery=9, at=NOON_MS - 2 * hour),
        settled("acked", 3),
        settled("delivered", 4, "mails", delivery=9),
        settled("delivered", 5, delivery=9),
        settled("filtered", 4, count=2),
        settled("delivered", 3_000_000_000, delivery=9),
        # A seek is one event, however far it goes.
        settled("skipped", 6, count=2_999_999_995),
        settled("delivered", 3_000_000_001, delivery=9),
    ]
    groups = spark.createDataFrame(
        [(TOPIC, "billing", "", QUEUE, 0, 0, 0), (TOPIC, "mails", "", QUEUE, 0, 5, 0)], GROUPS
    )

    found = stuck(happened(spark, *events), groups, now_ms=NOON_MS, deliveries=5, age_ms=hour).collect()

    assert sorted((row.group, row.offset, row.delivery, row.client) for row in found) == [
        ("billing", 0, 5, ""),
        ("billing", 1, 1, "c1"),
        ("billing", 3_000_000_001, 9, ""),
    ]
