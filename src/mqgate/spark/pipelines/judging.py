"""Runs the reconciliation and the search for stuck messages: gathers what they judge, stores what they find.

First where groups stand is asked, then, a moment later, what was told of them: so nothing can have been done that had
no time to be told.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for them

from mqgate.client import Client, GatewayError, every
from mqgate.core.events import EVENTS
from mqgate.core.message import milliseconds
from mqgate.core.names import OWN_PREFIX
from mqgate.spark.pipelines.decode import BATCH
from mqgate.spark.pipelines.plan import Plan
from mqgate.spark.pipelines.reconcile import FATES, GROUPS, OFFSETS, PRESENT, Judged, reconcile
from mqgate.spark.pipelines.stuck import stuck
from mqgate.stats.gaps import Gap, Told, gaps
from mqgate.stats.store import StatsStore

__all__ = ["Standing", "find_stuck", "judge_hour", "standings", "whole_hours"]

_HOUR = timedelta(hours=1)
_MOST_FINDINGS = 10_000
_MOST_CHECKED = 1_000
# Batches of before the hour, so that a hole at its beginning shows.
_LOOK_BACK = timedelta(minutes=5)
_STUCK_LOOK_BACK = timedelta(hours=24)


class Standing(NamedTuple):
    """A row of GROUPS."""

    topic: str
    group: str
    client: str
    queue: str
    min: int
    committed: int
    watched: int | None


def whole_hours(now: datetime, count: int) -> list[datetime]:
    """The last whole hours, the oldest first."""
    this = now.replace(minute=0, second=0, microsecond=0)
    return [this - number * _HOUR for number in range(count, 0, -1)]


def judge_hour(
    spark: SparkSession, plan: Plan, store: StatsStore, hour: datetime, topics: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Reconcile the messages of an hour, of all topics that have groups or of these; the rows that were stored."""
    with plan.connect() as client:
        standing = [each for each in standings(client, store) if not topics or each.topic in topics]
        offsets = list(_offsets(client, {each.topic for each in standing}, hour))
    if not offsets:
        return []
    time.sleep(plan.grace.total_seconds())
    now = datetime.now(UTC)
    rows = plan.events(
        spark, startingTimestamp=str(milliseconds(hour - _LOOK_BACK)), startingOffsetsByTimestampStrategy="latest"
    ).persist()
    try:
        holes = [gap for gap in gaps(_batches(rows), milliseconds(now)) if gap.until >= milliseconds(hour)]
        judged = reconcile(
            spark.createDataFrame(offsets, OFFSETS),
            spark.createDataFrame(standing, GROUPS),
            rows.where(F.col("table") == EVENTS.name),
            _present(spark, plan, offsets),
            is_dark=bool(holes),
        )
        return _store(plan, store, hour, now, judged, holes)
    finally:
        rows.unpersist()


def find_stuck(spark: SparkSession, plan: Plan, store: StatsStore) -> int:
    """Look for stuck messages among those delivered within a day; how many."""
    with plan.connect() as client:
        standing = standings(client, store)
    now = datetime.now(UTC)
    since = str(milliseconds(now - _STUCK_LOOK_BACK))
    rows = plan.events(spark, startingTimestamp=since, startingOffsetsByTimestampStrategy="latest")
    age = plan.stuck_age // timedelta(milliseconds=1)
    groups = spark.createDataFrame(standing, GROUPS)
    found = stuck(rows, groups, now_ms=milliseconds(now), deliveries=plan.stuck_deliveries, age_ms=age)
    columns = ("topic", "group", "queue", "offset", "at", "id", "client", "delivery", "stored_at", "reason")
    taken = found.select(*columns).limit(_MOST_FINDINGS).collect()
    store.replace("stuck", taken)
    return len(taken)


def standings(client: Client, store: StatsStore) -> list[Standing]:
    """Where all groups stand now, by queue; a broadcast group by client."""
    watched = {row[:4]: row[4] for row in store.read("watched")}
    found = []
    for group in every(client.groups.list):
        topic, name = group["topic"], group["name"]
        if topic.startswith(OWN_PREFIX):
            continue
        clients = [""]
        if group["mode"] == "broadcast":
            clients = [
                each["clientId"] for each in every(lambda cursor, name=name: client.clients(name, cursor=cursor))
            ]
        for each in clients:
            for queue in _lag(client, name, each):
                where = (topic, name, each, queue["queue"])
                found.append(Standing(*where, queue["min"], queue["committed"], watched.get(where)))
    return found


def _lag(client: Client, group: str, client_id: str) -> list[Mapping[str, Any]]:
    try:
        told: list[Mapping[str, Any]] = client.lag(group, client_id=client_id or None)["queues"]
    except GatewayError as error:
        if error.status != 404:  # noqa: PLR2004 - forgotten, or deleted, since it was listed
            raise
        return []
    return told


def _offsets(client: Client, topics: Iterable[str], hour: datetime) -> Iterable[tuple[str, str, int, int]]:
    for topic in sorted(topics):
        ends = {queue["queue"]: queue["offsetAt"] for queue in client.queues(topic, at=hour + _HOUR, times=False)}
        for queue in client.queues(topic, at=hour, times=False):
            start, end = queue["offsetAt"], ends.get(queue["queue"])
            # A queue that cannot be read now is left to the next run.
            if start is not None and end is not None and end > start:
                yield topic, queue["queue"], start, end


def _present(spark: SparkSession, plan: Plan, offsets: Sequence[tuple[str, str, int, int]]) -> DataFrame:
    """What the log holds at these offsets."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for topic, queue, start, end in offsets:
        starts.setdefault(topic, {})[queue] = start
        ends.setdefault(topic, {})[queue] = end
    chosen = {topic: sorted(queues) for topic, queues in starts.items()}
    options = plan.options(assign=chosen, startingOffsets=starts, endingOffsets=ends, failOnDataLoss="false")
    return spark.read.format("mqgate").options(**options).schema(PRESENT).load()


def _batches(rows: DataFrame) -> list[Told]:
    about = rows.where(F.col("table") == BATCH)
    flags = ("is_last", "is_told_so_far")
    columns = ("gateway", "incarnation", "sequence", F.unix_millis("batch_at"), "dropped", *flags)
    return [Told(*row) for row in about.select(*columns).collect()]


def _store(
    plan: Plan, store: StatsStore, hour: datetime, now: datetime, judged: Judged, holes: Sequence[Gap]
) -> list[dict[str, Any]]:
    try:
        findings = judged.findings.orderBy("topic", "group", "queue", "offset").limit(_MOST_FINDINGS).collect()
        summary = [row.asDict() for row in judged.summary.collect()]
    finally:
        judged.release()
    findings = _confirmed(plan, findings, summary)
    at = milliseconds(hour)
    for row in summary:
        row |= {"at": at, "state": _state(row), "why": _why(row, holes), "judged_at": milliseconds(now)}
    names = (
        "at",
        "topic",
        "group",
        "client",
        "published",
        *FATES,
        "duplicates",
        "late_acks",
        "state",
        "why",
        "judged_at",
    )
    store.put({"reconciliation": [[row[name] for name in names] for row in summary]})
    for topic in {row["topic"] for row in summary}:
        store.replace("findings", [(at, *row) for row in findings if row.topic == topic], at=at, topic=topic)
    return summary


def _confirmed(plan: Plan, findings: Sequence[Row], summary: Sequence[dict[str, Any]]) -> list[Row]:
    """Ask for each lost message once more by itself: one that is there after all is pending, or expired as was told.

    A bulk read ends where a message is gone, and so may miss those behind it.
    """
    lost = [row for row in findings if row.finding == "lost"][:_MOST_CHECKED]
    by_scope = {(row["topic"], row["group"], row["client"]): row for row in summary}
    there = set()
    with plan.connect() as client:
        for row in lost:
            if _is_there(client, row.topic, row.queue, row.offset):
                there.add(row)
                told = by_scope[row.topic, row.group, row.client]
                told["missing"] -= 1
                told["expired" if "retention" in row.detail else "pending"] += 1
    return [row for row in findings if row not in there]


def _is_there(client: Client, topic: str, queue: str, offset: int) -> bool:
    batches = client.read_queue(topic, queue, offset, 1, ["offset"])
    return any(each.as_py() == offset for batch in batches for each in batch.column(0))


def _state(row: Mapping[str, Any]) -> str:
    return "broken" if row["missing"] else "unknown" if row["unknown"] else "clean"


def _why(row: Mapping[str, Any], holes: Sequence[Gap]) -> str:
    if not row["unknown"]:
        return ""
    told = sorted({f"{gap.gateway}: {gap.reason}" for gap in holes})
    return f"not all was told ({', '.join(told)})"
