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
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.decode import BATCH
from mqgate.spark.pipelines.live import classify_batches, exclude_batches, told
from mqgate.spark.pipelines.reconcile import DISPOSITIONS, GROUPS, OFFSETS, PRESENT, Reconciliation, reconcile
from mqgate.spark.pipelines.stuck import stuck
from mqgate.stats.gaps import EventBatch, Gap, gaps, last_batches
from mqgate.stats.sql import quoted
from mqgate.stats.store import StatsStore
from mqgate.stats.tables import table_of

__all__ = ["GroupPosition", "find_stuck", "group_positions", "is_left_out", "reconcile_hour", "whole_hours"]

_HOUR = timedelta(hours=1)
_MAX_FINDINGS = 10_000
_MAX_CHECKED = 1_000
# Batches of before the hour, so that a hole at its beginning shows.
_LOOK_BACK = timedelta(minutes=5)
# Messages of before the hour, whose copies may be in it: a publish that was not answered is mostly sent again soon.
_COPIES_LOOK_BACK = timedelta(minutes=15)
_STUCK_LOOK_BACK = timedelta(hours=24)


class GroupPosition(NamedTuple):
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


def reconcile_hour(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, hour: datetime, topics: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Reconcile the messages of an hour, of all topics that have groups or of these; the rows that were stored."""
    with config.connect() as client:
        standing = [each for each in group_positions(client, store) if not topics or each.topic in topics]
        looked_at = milliseconds(datetime.now(UTC))
        offsets, unread = _offsets(client, {each.topic for each in standing}, hour)
        left_out = _left_out(standing, unread)
        _put(store, hour, datetime.now(UTC), left_out, is_kept=True)
        if not any(end > start for _, _, start, end in offsets):
            return left_out
        time.sleep(config.grace.total_seconds())
        now = datetime.now(UTC)
        known = last_batches(store)
        holes = _forgotten(client, config.events_topic, hour)
        rows = config.events(
            spark, startingTimestamp=str(milliseconds(hour - _LOOK_BACK)), startingOffsetsByTimestampStrategy="latest"
        ).persist()
        present = _present(spark, config, _with_earlier(client, offsets, hour)).persist()
        try:
            read = classify_batches(told(rows), lambda _: set())
            holes += _holes(_batches(rows), known, read.rows["quarantine"], hour, looked_at)
            # What retention has taken by now is not there, and not lost.
            present.count()
            judged = reconcile(
                spark.createDataFrame(offsets, OFFSETS),
                spark.createDataFrame(_with_first_kept(client, standing), GROUPS),
                exclude_batches(rows, read.repeated).where(F.col("table") == EVENTS.name),
                present,
                has_gaps=bool(holes),
            )
            return left_out + _store(client, store, hour, now, judged, holes)
        finally:
            rows.unpersist()
            present.unpersist()


def find_stuck(spark: SparkSession, config: PipelineConfig, store: StatsStore) -> int:
    """Look for stuck messages among those delivered within a day; how many."""
    with config.connect() as client:
        standing = group_positions(client, store)
    now = datetime.now(UTC)
    since = str(milliseconds(now - _STUCK_LOOK_BACK))
    rows = config.events(spark, startingTimestamp=since, startingOffsetsByTimestampStrategy="latest")
    age = config.stuck_age // timedelta(milliseconds=1)
    groups = spark.createDataFrame(standing, GROUPS)
    found = stuck(rows, groups, now_ms=milliseconds(now), deliveries=config.stuck_deliveries, age_ms=age)
    columns = ("topic", "group", "queue", "offset", "at", "id", "client", "delivery", "stored_at", "reason")
    taken = found.select(*columns).limit(_MAX_FINDINGS).collect()
    store.replace("stuck", taken)
    return len(taken)


def group_positions(client: Client, store: StatsStore) -> list[GroupPosition]:
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
                found.append(GroupPosition(*where, queue["min"], queue["committed"], watched.get(where)))
    return found


def _lag(client: Client, group: str, client_id: str) -> list[Mapping[str, Any]]:
    try:
        told: list[Mapping[str, Any]] = client.lag(group, client_id=client_id or None)["queues"]
    except GatewayError as error:
        if error.status != 404:  # noqa: PLR2004 - forgotten, or deleted, since it was listed
            raise
        return []
    return told


def _offsets(
    client: Client, topics: Iterable[str], hour: datetime
) -> tuple[list[tuple[str, str, int, int]], dict[str, str]]:
    """The offsets of an hour; and which topics have a queue that cannot be read now: nothing is judged of those."""
    found: list[tuple[str, str, int, int]] = []
    unread = {}
    for topic in sorted(topics):
        ends = {queue["queue"]: queue["offsetAt"] for queue in client.queues(topic, at=hour + _HOUR, times=False)}
        starts = {queue["queue"]: queue["offsetAt"] for queue in client.queues(topic, at=hour, times=False)}
        shut = sorted(queue for each in (starts, ends) for queue, offset in each.items() if offset is None)
        if shut:
            unread[topic] = shut[0]
            continue
        # Also queues without any: a message of before may have its copy in another queue.
        found += [(topic, name, start, ends.get(name, start)) for name, start in starts.items()]
    return found, unread


def _with_earlier(
    client: Client, offsets: Sequence[tuple[str, str, int, int]], hour: datetime
) -> list[tuple[str, str, int, int]]:
    """The same, from a while before the hour on."""
    topics = {topic for topic, _, start, end in offsets if end > start}
    earlier = {
        (topic, queue["queue"]): queue["offsetAt"]
        for topic in topics
        for queue in client.queues(topic, at=hour - _COPIES_LOOK_BACK, times=False)
        if queue["offsetAt"] is not None
    }
    wider = [(*each[:2], min(each[2], earlier.get(each[:2], each[2])), each[3]) for each in offsets]
    return [(topic, queue, start, end) for topic, queue, start, end in wider if end > start]


def _with_first_kept(client: Client, standing: Sequence[GroupPosition]) -> list[GroupPosition]:
    """Where groups stood, and which offsets are the first kept now."""
    kept = _first_kept(client, {each.topic for each in standing})
    return [each._replace(min=max(each.min, kept.get((each.topic, each.queue), 0))) for each in standing]


def _first_kept(client: Client, topics: Iterable[str]) -> dict[tuple[str, str], int]:
    return {(topic, each["queue"]): each["min"] for topic in topics for each in client.queues(topic, times=False)}


def _forgotten(client: Client, events_topic: str, hour: datetime) -> list[Gap]:
    """Queues of the events topic whose first kept batch is of after the hour's beginning: there may have been more."""
    return [
        Gap(f"{events_topic} {queue['queue']}", 0, milliseconds(hour), "forgotten")
        for queue in client.queues(events_topic, at=hour, times=False)
        if 0 < queue["min"] < queue["max"] and queue["offsetAt"] == queue["min"]
    ]


def _holes(
    batches: Sequence[EventBatch], known: Sequence[EventBatch], aside: Sequence[Any], hour: datetime, looked_at: int
) -> list[Gap]:
    """Why not all that happened since an hour began may have been told in what was read.

    `known` by the tables are last batches, which tell of gateways that have been silent since before.
    """
    begin = milliseconds(hour)
    heard = {batch[:2] for batch in batches}
    silent = [batch for batch in known if batch[:2] not in heard]
    found = [gap for gap in gaps([*batches, *silent], looked_at) if gap.until >= begin]
    found += [Gap(each.gateway, begin, each.at, "forgotten") for each in silent if each.at >= begin]
    unreadable = ((gateway, at) for _, _, _, at, gateway, *_ in aside)
    return found + [Gap(gateway, at, at, "unreadable") for gateway, at in unreadable if at >= begin]


def _present(spark: SparkSession, config: PipelineConfig, offsets: Sequence[tuple[str, str, int, int]]) -> DataFrame:
    """What the log holds at these offsets."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for topic, queue, start, end in offsets:
        starts.setdefault(topic, {})[queue] = start
        ends.setdefault(topic, {})[queue] = end
    chosen = {topic: sorted(queues) for topic, queues in starts.items()}
    options = config.options(assign=chosen, startingOffsets=starts, endingOffsets=ends, failOnDataLoss="false")
    return spark.read.format("mqgate").options(**options).schema(PRESENT).load()


def _batches(rows: DataFrame) -> list[EventBatch]:
    about = rows.where(F.col("table") == BATCH)
    flags = ("is_last", "is_idle")
    columns = ("gateway", "incarnation", "sequence", F.unix_millis("batch_at"), "dropped", *flags)
    return [EventBatch(*row) for row in about.select(*columns).collect()]


def _store(
    client: Client, store: StatsStore, hour: datetime, now: datetime, judged: Reconciliation, holes: Sequence[Gap]
) -> list[dict[str, Any]]:
    try:
        findings = judged.findings.orderBy("topic", "group", "queue", "offset").limit(_MAX_FINDINGS).collect()
        summary = [row.asDict() for row in judged.summary.collect()]
    finally:
        judged.release()
    findings = _confirmed(client, findings, summary)
    for row in summary:
        row |= {"state": _state(row), "why": _why(row, holes)}
    _put(store, hour, now, summary)
    at = milliseconds(hour)
    for topic in {row["topic"] for row in summary}:
        store.replace("findings", [(at, *row) for row in findings if row.topic == topic], at=at, topic=topic)
    return summary


def _put(
    store: StatsStore, hour: datetime, now: datetime, rows: Sequence[dict[str, Any]], *, is_kept: bool = False
) -> None:
    """Store rows in the place of those that are there; `is_kept`: those stay."""
    at, table = milliseconds(hour), table_of("reconciliation")
    there = set(store.select(f"SELECT {quoted(*table.keys)} FROM {table.sql_name} WHERE at = ?", (at,)))  # noqa: S608 - our own names
    for row in rows:
        row |= {"at": at, "judged_at": milliseconds(now)}
    fresh = [row for row in rows if not (is_kept and tuple(row[name] for name in table.keys) in there)]
    store.put({"reconciliation": [[row[name] for name in table.columns] for row in fresh]})


def is_left_out(row: Mapping[str, Any]) -> bool:
    """Whether a row only says that nothing could be judged."""
    return not row["published"]


def _left_out(standing: Iterable[GroupPosition], unread: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of groups whose topics cannot be read now."""
    scopes = sorted({each[:3] for each in standing if each.topic in unread})
    counts = dict.fromkeys(("published", *DISPOSITIONS, "duplicates", "late_acks"), 0)
    return [
        {"topic": topic, "group": group, "client": client, **counts}
        | {"state": "unknown", "why": f"{unread[topic]} could not be read"}
        for topic, group, client in scopes
    ]


def _confirmed(client: Client, findings: Sequence[Row], summary: Sequence[dict[str, Any]]) -> list[Row]:
    """Ask for each lost message once more by itself: one that is there after all is pending, or expired as was told.

    A bulk read may end where a message is gone, and so miss those behind it. And retention may have come meanwhile.
    """
    lost = [row for row in findings if row.finding == "lost"]
    kept = _first_kept(client, {row.topic for row in lost})
    by_scope = {(row["topic"], row["group"], row["client"]): row for row in summary}
    explained = set()
    for number, row in enumerate(lost):
        is_expired = row.offset < kept.get((row.topic, row.queue), 0)
        if is_expired or (number < _MAX_CHECKED and _is_there(client, row.topic, row.queue, row.offset)):
            explained.add(row)
            counts = by_scope[row.topic, row.group, row.client]
            counts["missing"] -= 1
            counts["expired" if is_expired or "retention" in row.detail else "pending"] += 1
    return [row for row in findings if row not in explained]


def _is_there(client: Client, topic: str, queue: str, offset: int) -> bool:
    batches = client.read_queue(topic, queue, offset, 1, ["offset"])
    return any(each.as_py() == offset for batch in batches for each in batch.column(0))


def _state(row: Mapping[str, Any]) -> str:
    return "broken" if row["missing"] else "unknown" if row["unknown"] or row["unwatched"] else "clean"


def _why(row: Mapping[str, Any], holes: Sequence[Gap]) -> str:
    reasons = []
    if row["unknown"]:
        told = sorted({f"{gap.gateway}: {gap.reason}" for gap in holes})
        reasons.append(f"not all was told ({', '.join(told)})")
    if row["unwatched"]:
        reasons.append("some are of before the group was first seen")
    return ", ".join(reasons)
