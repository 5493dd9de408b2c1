"""Runs the reconciliation of an hour and the search for stuck messages: reads their input, stores their results.

The positions of the groups are read first, and the events after a grace period. Therefore every settlement below these
positions had time to be written as an event.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from mqgate.client import Client, GatewayError, every
from mqgate.core.events import EVENTS
from mqgate.core.message import milliseconds
from mqgate.core.names import OWN_PREFIX
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.decode import BATCH
from mqgate.spark.pipelines.live import batch_rows, classify_batches, exclude_batches
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
# Read earlier batches too, so that a gap at the beginning of the hour is detected.
_LOOK_BACK = timedelta(minutes=5)
# Read earlier messages too, because the hour may contain copies of them: clients repeat a publish without response.
_COPIES_LOOK_BACK = timedelta(minutes=15)
_STUCK_LOOK_BACK = timedelta(hours=24)


class GroupPosition(NamedTuple):
    """The position of a group in a queue; a row of GROUPS."""

    topic: str
    group: str
    client: str
    queue: str
    min: int
    committed: int
    watched: int | None


def whole_hours(now: datetime, count: int) -> list[datetime]:
    """Return the last whole hours, oldest first."""
    this = now.replace(minute=0, second=0, microsecond=0)
    return [this - number * _HOUR for number in range(count, 0, -1)]


def reconcile_hour(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, hour: datetime, topics: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Reconcile the messages of an hour, of these topics or of all topics with groups. Return the stored rows."""
    with config.connect() as client:
        positions = [position for position in group_positions(client, store) if not topics or position.topic in topics]
        observed_at = milliseconds(datetime.now(UTC))
        offsets, unread = _offsets(client, {position.topic for position in positions}, hour)
        left_out = _left_out(positions, unread)
        _put(store, hour, datetime.now(UTC), left_out, keep_existing=True)
        if not any(end > start for _, _, start, end in offsets):
            return left_out
        time.sleep(config.grace.total_seconds())
        now = datetime.now(UTC)
        known = last_batches(store)
        found_gaps = _truncated_queues(client, config.events_topic, hour)
        rows = config.events(
            spark, startingTimestamp=str(milliseconds(hour - _LOOK_BACK)), startingOffsetsByTimestampStrategy="latest"
        ).persist()
        present = _present(spark, config, _with_earlier(client, offsets, hour)).persist()
        try:
            read = classify_batches(batch_rows(rows), lambda _: set())
            found_gaps += _find_gaps(_batches(rows), known, read.rows["quarantine"], hour, observed_at)
            # Materialize before the first retained offsets are read, so that retention is not counted as a loss.
            present.count()
            reconciliation = reconcile(
                spark.createDataFrame(offsets, OFFSETS),
                spark.createDataFrame(_with_first_retained(client, positions), GROUPS),
                exclude_batches(rows, read.repeated).where(F.col("table") == EVENTS.name),
                present,
                has_gaps=bool(found_gaps),
            )
            return left_out + _store(client, store, hour, now, reconciliation, found_gaps)
        finally:
            rows.unpersist()
            present.unpersist()


def find_stuck(spark: SparkSession, config: PipelineConfig, store: StatsStore) -> int:
    """Store the stuck messages among those delivered within a day. Return their number."""
    with config.connect() as client:
        positions = group_positions(client, store)
    now = datetime.now(UTC)
    since = str(milliseconds(now - _STUCK_LOOK_BACK))
    rows = config.events(spark, startingTimestamp=since, startingOffsetsByTimestampStrategy="latest")
    age = config.stuck_age // timedelta(milliseconds=1)
    groups = spark.createDataFrame(positions, GROUPS)
    found = stuck(rows, groups, now_ms=milliseconds(now), deliveries=config.stuck_deliveries, age_ms=age)
    columns = ("topic", "group", "queue", "offset", "at", "id", "client", "delivery", "stored_at", "reason")
    messages = found.select(*columns).limit(_MAX_FINDINGS).collect()
    store.replace("stuck", messages)
    return len(messages)


def group_positions(client: Client, store: StatsStore) -> list[GroupPosition]:
    """Return the positions of all groups by queue, and of broadcast groups by client."""
    watched = {row[:4]: row[4] for row in store.read("watched")}
    found = []
    for group in every(client.groups.list):
        topic, name = group["topic"], group["name"]
        if topic.startswith(OWN_PREFIX):
            continue
        clients = [""]
        if group["mode"] == "broadcast":
            clients = [
                entry["clientId"] for entry in every(lambda cursor, name=name: client.clients(name, cursor=cursor))
            ]
        for client_id in clients:
            for queue in _lag(client, name, client_id):
                where = (topic, name, client_id, queue["queue"])
                found.append(GroupPosition(*where, queue["min"], queue["committed"], watched.get(where)))
    return found


def _lag(client: Client, group: str, client_id: str) -> Sequence[Mapping[str, Any]]:
    try:
        queues: Sequence[Mapping[str, Any]] = client.lag(group, client_id=client_id or None)["queues"]
    except GatewayError as error:
        if error.status != 404:  # noqa: PLR2004 - deleted since it was listed
            raise
        return []
    return queues


def _offsets(
    client: Client, topics: Iterable[str], hour: datetime
) -> tuple[list[tuple[str, str, int, int]], dict[str, str]]:
    """Return the offsets of an hour, and the topics with a queue that cannot be read now, which are skipped."""
    found: list[tuple[str, str, int, int]] = []
    unread = {}
    for topic in sorted(topics):
        ends = {queue["queue"]: queue["offsetAt"] for queue in client.queues(topic, at=hour + _HOUR, times=False)}
        starts = {queue["queue"]: queue["offsetAt"] for queue in client.queues(topic, at=hour, times=False)}
        closed = sorted(queue for bounds in (starts, ends) for queue, offset in bounds.items() if offset is None)
        if closed:
            unread[topic] = closed[0]
            continue
        # Include queues without messages in the hour: they may contain the original of a copy.
        for name, start in starts.items():
            end = ends.get(name, start)
            if start is not None and end is not None:
                found.append((topic, name, start, end))
    return found, unread


def _with_earlier(
    client: Client, offsets: Sequence[tuple[str, str, int, int]], hour: datetime
) -> list[tuple[str, str, int, int]]:
    """Return the offsets extended to messages from shortly before the hour."""
    topics = {topic for topic, _, start, end in offsets if end > start}
    earlier = {
        (topic, queue["queue"]): queue["offsetAt"]
        for topic in topics
        for queue in client.queues(topic, at=hour - _COPIES_LOOK_BACK, times=False)
        if queue["offsetAt"] is not None
    }
    wider = [
        (topic, queue, min(start, earlier.get((topic, queue), start)), end) for topic, queue, start, end in offsets
    ]
    return [(topic, queue, start, end) for topic, queue, start, end in wider if end > start]


def _with_first_retained(client: Client, positions: Sequence[GroupPosition]) -> list[GroupPosition]:
    """Return the positions with the offsets that are the first retained ones now."""
    retained = _first_retained(client, {position.topic for position in positions})
    return [
        position._replace(min=max(position.min, retained.get((position.topic, position.queue), 0)))
        for position in positions
    ]


def _first_retained(client: Client, topics: Iterable[str]) -> dict[tuple[str, str], int]:
    return {(topic, queue["queue"]): queue["min"] for topic in topics for queue in client.queues(topic, times=False)}


def _truncated_queues(client: Client, events_topic: str, hour: datetime) -> list[Gap]:
    """Return a gap for each queue of the events topic whose first retained batch is later than the hour."""
    return [
        Gap(f"{events_topic} {queue['queue']}", 0, milliseconds(hour), "forgotten")
        for queue in client.queues(events_topic, at=hour, times=False)
        if 0 < queue["min"] < queue["max"] and queue["offsetAt"] == queue["min"]
    ]


def _find_gaps(
    batches: Sequence[EventBatch],
    known: Sequence[EventBatch],
    quarantined: Sequence[Any],
    hour: datetime,
    observed_at: int,
) -> list[Gap]:
    """Return the gaps in the events since the beginning of an hour.

    `known` are the last batches in the store. They reveal gateways that wrote no batch in the period that was read.
    """
    begin = milliseconds(hour)
    seen = {batch[:2] for batch in batches}
    silent = [batch for batch in known if batch[:2] not in seen]
    found = [gap for gap in gaps([*batches, *silent], observed_at) if gap.until >= begin]
    found += [Gap(batch.gateway, begin, batch.at, "forgotten") for batch in silent if batch.at >= begin]
    unreadable = ((gateway, at) for _, _, _, at, gateway, *_ in quarantined)
    return found + [Gap(gateway, at, at, "unreadable") for gateway, at in unreadable if at >= begin]


def _present(spark: SparkSession, config: PipelineConfig, offsets: Sequence[tuple[str, str, int, int]]) -> DataFrame:
    """Return the messages that the log contains at these offsets."""
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
    client: Client,
    store: StatsStore,
    hour: datetime,
    now: datetime,
    reconciliation: Reconciliation,
    found_gaps: Sequence[Gap],
) -> list[dict[str, Any]]:
    try:
        findings = reconciliation.findings.orderBy("topic", "group", "queue", "offset").limit(_MAX_FINDINGS).collect()
        summary = [row.asDict() for row in reconciliation.summary.collect()]
    finally:
        reconciliation.release()
    findings = _confirm_losses(client, findings, summary)
    for row in summary:
        row |= {"state": _state(row), "why": _why(row, found_gaps)}
    _put(store, hour, now, summary)
    at = milliseconds(hour)
    for topic in {row["topic"] for row in summary}:
        store.replace("findings", [(at, *row) for row in findings if row.topic == topic], at=at, topic=topic)
    return summary


def _put(
    store: StatsStore, hour: datetime, now: datetime, rows: Sequence[dict[str, Any]], *, keep_existing: bool = False
) -> None:
    """Store rows. Existing rows are replaced, or kept with `keep_existing`."""
    at, table = milliseconds(hour), table_of("reconciliation")
    existing = set(store.select(f"SELECT {quoted(*table.keys)} FROM {table.sql_name} WHERE at = ?", (at,)))  # noqa: S608 - our own names
    for row in rows:
        row |= {"at": at, "judged_at": milliseconds(now)}
    new_rows = [row for row in rows if not (keep_existing and tuple(row[name] for name in table.keys) in existing)]
    store.put({"reconciliation": [[row[name] for name in table.columns] for row in new_rows]})


def is_left_out(row: Mapping[str, Any]) -> bool:
    """Return whether the row reports only that the topic could not be read."""
    return not row["published"]


def _left_out(positions: Iterable[GroupPosition], unread: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return rows for groups whose topics cannot be read now."""
    scopes = sorted({position[:3] for position in positions if position.topic in unread})
    counts = dict.fromkeys(("published", *DISPOSITIONS, "duplicates", "late_acks"), 0)
    return [
        {"topic": topic, "group": group, "client": client, **counts}
        | {"state": "unknown", "why": f"{unread[topic]} could not be read"}
        for topic, group, client in scopes
    ]


def _confirm_losses(client: Client, findings: Sequence[Row], summary: Sequence[dict[str, Any]]) -> list[Row]:
    """Read each lost message again. One that still exists is pending, or expired if an event reported so.

    A bulk read may end at a missing message and skip the following ones. Retention may have deleted messages meanwhile.
    """
    lost = [row for row in findings if row.finding == "lost"]
    retained = _first_retained(client, {row.topic for row in lost})
    by_scope = {(row["topic"], row["group"], row["client"]): row for row in summary}
    explained = set()
    for number, row in enumerate(lost):
        is_expired = row.offset < retained.get((row.topic, row.queue), 0)
        if is_expired or (number < _MAX_CHECKED and _exists(client, row.topic, row.queue, row.offset)):
            explained.add(row)
            counts = by_scope[row.topic, row.group, row.client]
            counts["missing"] -= 1
            counts["expired" if is_expired or "retention" in row.detail else "pending"] += 1
    return [row for row in findings if row not in explained]


def _exists(client: Client, topic: str, queue: str, offset: int) -> bool:
    batches = client.read_queue(topic, queue, offset, 1, ["offset"])
    return any(value.as_py() == offset for batch in batches for value in batch.column(0))


def _state(row: Mapping[str, Any]) -> str:
    return "broken" if row["missing"] else "unknown" if row["unknown"] or row["unwatched"] else "clean"


def _why(row: Mapping[str, Any], found_gaps: Sequence[Gap]) -> str:
    reasons = []
    if row["unknown"]:
        causes = sorted({f"{gap.gateway}: {gap.reason}" for gap in found_gaps})
        reasons.append(f"events are incomplete ({', '.join(causes)})")
    if row["unwatched"]:
        reasons.append("some messages are older than the first sample of the group")
    return ", ".join(reasons)
