"""The reconciliation end to end, with a real gateway, its events, and changes made outside of it."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from event_batches import GatewayEvents, event, publish_batches
from pyspark.sql import Row, SparkSession
from spark_calls import fill, retained

from mqgate.client import Client
from mqgate.core.message import milliseconds
from mqgate.spark.pipelines import due_hours, hourly_reconciliation
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.hourly_reconciliation import find_stuck, reconcile_hour, whole_hours
from mqgate.stats import reports
from mqgate.stats.gaps import EventBatch, Gap
from mqgate.stats.reports import ReportQuery
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore
from mqgate.stats.tables import table_of
from mqgate.testing.server_process import ServerProcess

HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True), is_writing=True)


@pytest.fixture
def events_topic(client: Client) -> str:
    name = f"events-{uuid4().hex}"
    client.topics.put(name, {"queues": 1})
    return name


@pytest.fixture
def config(client: Client, events_topic: str, tmp_path: Path) -> PipelineConfig:
    return PipelineConfig(url=client.url, directory=tmp_path, events_topic=events_topic, grace=timedelta(0))


@pytest.fixture
def group(client: Client, topic: str, store: StatsStore) -> Iterator[str]:
    """Create a group that was sampled from its beginning."""
    name = f"group-{uuid4().hex}"
    client.groups.put(name, {"topic": topic, "visibility": "1h"})
    queues = [queue["queue"] for queue in client.queues(topic, times=False)]
    store.put({"lag_minute": [(0, topic, name, "", queue, 0, 0, 0, 0, 0, 0, 0, None) for queue in queues]})
    yield name
    client.groups.delete(name)


def messages(client: Client, group: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += client.receive(group, max=count - len(found))["messages"]
    return found


def place(message: dict[str, Any]) -> dict[str, Any]:
    return {"queue": message["queue"], "offset": message["offset"]}


def hour_of(message: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(message["storedAt"]).replace(minute=0, second=0, microsecond=0)


def behind_its_back(gateway: ServerProcess, statement: str, *values: str) -> None:
    with closing(sqlite3.connect(gateway.directory / "mqgate.db", timeout=30)) as database:
        assert database.execute(statement, values).rowcount == 1
        database.commit()


def test_a_loss_a_copy_and_a_late_ack_are_found(
    spark: SparkSession,
    gateway: ServerProcess,
    client: Client,
    topic: str,
    group: str,
    store: StatsStore,
    config: PipelineConfig,
) -> None:
    """Nothing else is found: unsettled messages, also after the loss, are pending."""
    fill(client, topic, 12)
    got = messages(client, group, 12)
    client.ack_all(group, [message["receipt"] for message in got])
    fill(client, topic, 12, start=12)
    left = messages(client, group, 12)
    hour = hour_of(got[0])
    at = milliseconds(datetime.now(UTC))
    events = [event("published", at, topic, id=message["id"], **place(message)) for message in (*got, *left)]
    events += [event("acked", at, topic, group=group, outcome="applied", **place(message)) for message in got[1:]]
    events += [event("acked", at, topic, group=group, outcome="late_applied", **place(got[0]))]
    publish_batches(client, config.events_topic, GatewayEvents().batch(events, sent_at=at))
    # One that has others behind it in its queue: a bulk read ends there.
    lost = min(
        (message for message in left if sum(e["queue"] == message["queue"] for e in left) > 1),
        key=lambda e: e["offset"],
    )
    copy = next(message for message in left if message["queue"] != lost["queue"])
    behind_its_back(gateway, "DELETE FROM message WHERE id = ?", lost["id"])
    behind_its_back(gateway, "UPDATE message SET id = ? WHERE id = ?", got[1]["id"], copy["id"])

    (row,) = reconcile_hour(spark, config, store, hour, [topic])

    if hour_of(left[-1]) != hour:
        pytest.skip("the hour ended in the middle of the test")
    assert (row["published"], row["acked"], row["pending"], row["missing"], row["unknown"]) == (24, 12, 11, 1, 0)
    assert (row["state"], row["late_acks"], row["duplicates"]) == ("broken", 1, 1)
    found = reports.findings(store, ReportQuery(hour, hour + HOUR, 100))
    assert {
        (message["finding"], message["queue"], message["offset"])
        for message in found
        if message["finding"] != "duplicate"
    } == {
        ("lost", lost["queue"], lost["offset"]),
        ("late_ack", got[0]["queue"], got[0]["offset"]),
    }
    assert [message["id"] for message in found if message["finding"] == "duplicate"] == [got[1]["id"]]


def test_a_copy_of_a_message_from_before_the_hour_is_found(
    spark: SparkSession,
    gateway: ServerProcess,
    client: Client,
    topic: str,
    group: str,
    store: StatsStore,
    config: PipelineConfig,
) -> None:
    """The original may be in a queue without messages in the hour."""
    (before,) = fill(client, topic, 1)
    (queue,) = [queue["queue"] for queue in client.queues(topic) if queue["max"]]
    hour = datetime.now(UTC) + timedelta(milliseconds=2)
    time.sleep(0.01)
    for number in range(20):
        fill(client, topic, 1, start=number + 1)
    found = [message for message in messages(client, group, 21) if message["queue"] != queue]
    behind_its_back(gateway, "UPDATE message SET id = ? WHERE id = ?", before, found[0]["id"])

    (row,) = reconcile_hour(spark, config, store, hour, [topic])

    assert (row["published"], row["duplicates"]) == (20, 1)
    (finding,) = reports.findings(store, ReportQuery(hour, hour + HOUR, 100))
    assert (finding["finding"], finding["queue"], finding["offset"]) == (
        "duplicate",
        found[0]["queue"],
        found[0]["offset"],
    )


def test_an_hour_with_a_killed_gateway_is_unknown_not_broken(
    spark: SparkSession, client: Client, topic: str, group: str, store: StatsStore, config: PipelineConfig
) -> None:
    """The gateway may have settled messages without writing the events."""
    fill(client, topic, 6)
    got = messages(client, group, 6)
    client.ack_all(group, [message["receipt"] for message in got])
    hour, at = hour_of(got[0]), milliseconds(datetime.now(UTC))
    killed = GatewayEvents("gw-killed")
    acked = [event("acked", at, topic, group=group, **place(message)) for message in got[:4]]
    first, missing, third = (
        killed.batch(acked, sent_at=at),
        killed.batch([], sent_at=at),
        killed.batch([], sent_at=at),
    )
    assert missing
    publish_batches(client, config.events_topic, first, third)

    (row,) = reconcile_hour(spark, config, store, hour, [topic])

    if hour_of(got[-1]) != hour:
        pytest.skip("the hour ended in the middle of the test")
    assert (row["state"], row["acked"], row["unknown"], row["missing"]) == ("unknown", 4, 2, 0)
    assert "gw-killed: lost" in row["why"]


def test_a_passed_message_without_settlement_breaks_the_hour(
    spark: SparkSession,
    client: Client,
    topic: str,
    group: str,
    store: StatsStore,
    config: PipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gap before the hour is no excuse, and events written while positions are read still count."""
    fill(client, topic, 4)
    got = messages(client, group, 4)
    client.ack_all(group, [message["receipt"] for message in got])
    at, hour = milliseconds(datetime.now(UTC)), hour_of(got[0])
    events = [event("acked", at, topic, group=group, **place(message)) for message in got[1:]]
    gateway_events, paused = GatewayEvents(), []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        publish_batches(client, config.events_topic, gateway_events.batch(events, sent_at=at))

    monkeypatch.setattr(hourly_reconciliation, "time", SimpleNamespace(sleep=pause))
    monkeypatch.setattr(hourly_reconciliation, "gaps", lambda *_: [Gap("gw-0", 0, milliseconds(hour) - 1, "killed")])

    (row,) = reconcile_hour(spark, config, store, hour, [topic])

    if hour_of(got[-1]) != hour:
        pytest.skip("the hour ended in the middle of the test")
    assert paused == [config.grace.total_seconds()]
    assert (row["state"], row["acked"], row["missing"], row["unknown"]) == ("broken", 3, 1, 0)
    (found,) = reports.findings(store, ReportQuery(hour, hour + HOUR, 100))
    assert (found["finding"], found["queue"], found["offset"]) == ("missing", got[0]["queue"], got[0]["offset"])


def test_a_repeated_batch_is_no_second_ack_and_expired_messages_are_not_lost(
    spark: SparkSession,
    client: Client,
    topic: str,
    group: str,
    store: StatsStore,
    config: PipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway repeats a batch whose fate it did not learn; and groups are looked at before the log is."""
    fill(client, topic, 4)
    got = messages(client, group, 4)
    client.ack_all(group, [message["receipt"] for message in got])
    fill(client, topic, 3, start=4)
    hour, at = hour_of(got[0]), milliseconds(datetime.now(UTC))
    events = GatewayEvents().batch(
        [event("acked", at, topic, group=group, **place(message)) for message in got], sent_at=at
    )
    publish_batches(client, config.events_topic, events, events)
    monkeypatch.setattr(hourly_reconciliation, "time", SimpleNamespace(sleep=lambda _: retained(client, topic)))

    (row,) = reconcile_hour(spark, config, store, hour, [topic])

    if datetime.now(UTC) - hour >= HOUR:
        pytest.skip("the hour ended in the middle of the test")
    assert (row["state"], row["acked"], row["expired"], row["duplicates"]) == ("clean", 4, 3, 0)


def test_an_hour_with_incomplete_events_is_unknown_not_broken(
    spark: SparkSession, client: Client, topic: str, group: str, store: StatsStore, config: PipelineConfig
) -> None:
    """Causes are the retention of the topic, a newer gateway, and a gateway that was killed while idle."""
    fill(client, topic, 4)
    got = messages(client, group, 4)
    client.ack_all(group, [message["receipt"] for message in got])
    hour, at = hour_of(got[0]), milliseconds(datetime.now(UTC))
    acked = [event("acked", at, topic, group=group, **place(message)) for message in got]
    publish_batches(client, config.events_topic, GatewayEvents().batch(acked[:2], sent_at=at, last="true"))
    retained(client, config.events_topic)
    store.put({"event_batches": [("gw-rested", "i-0", 7, at - 10 * 3_600_000, 0, 0, 0)]})
    publish_batches(
        client,
        config.events_topic,
        GatewayEvents("gw-newer").batch(acked[2:], sent_at=at, schema="events/2"),
        GatewayEvents("gw-rested").batch(sent_at=at, last="so_far"),
    )

    (row,) = reconcile_hour(spark, config, store, hour, [topic])

    if hour_of(got[-1]) != hour:
        pytest.skip("the hour ended in the middle of the test")
    assert (row["state"], row["unknown"], row["missing"]) == ("unknown", 4, 0)
    assert {"gw-newer: unreadable", "gw-rested: killed", f"{config.events_topic} local:0: forgotten"} == set(
        row["why"].removeprefix("events are incomplete (").removesuffix(")").split(", ")
    )


def test_batches_that_only_the_store_contains_are_forgotten() -> None:
    """This is detected even if the topic itself does not show its retention."""
    at = milliseconds(NOON)
    known = [EventBatch("gw-1", "i-1", 7, at + offset, 0, is_last=True) for offset in (-1, 1)]

    assert [hourly_reconciliation._find_gaps([], [batch], [], NOON, at + 5) for batch in known] == [
        [],
        [Gap("gw-1", at, at + 1, "forgotten")],
    ]


def test_a_lost_message_is_read_again(client: Client, topic: str) -> None:
    """A bulk read may have skipped it, or retention may have deleted it since."""
    name = f"{topic}-one"
    client.topics.put(name, {"queues": 1})
    fill(client, name, 4)
    retained(client, name)
    fill(client, name, 2, start=4)
    scope = {"topic": name, "group": "billing", "client": ""}
    details = {3: "", 4: "", 5: "although retention has not reached it", 6: ""}
    found = [
        Row(**scope, queue="local:0", offset=offset, finding="lost", id="", detail=detail)
        for offset, detail in details.items()
    ]
    summary = [scope | {"missing": 4, "expired": 0, "pending": 0}]

    assert [row.offset for row in hourly_reconciliation._confirm_losses(client, found, summary)] == [6]
    assert summary == [scope | {"missing": 1, "expired": 2, "pending": 1}]


class HalfShut(Client):
    """A gateway with one queue that cannot be read."""

    def queues(self, *given: Any, **more: Any) -> list[Any]:
        first, *others = super().queues(*given, **more)
        return [first | {"offsetAt": None}, *others]


def test_a_topic_that_cannot_be_read_is_not_clean(
    client: Client, topic: str, group: str, store: StatsStore, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not reconciled now, and earlier results are kept."""
    fill(client, topic, 4)
    monkeypatch.setattr(PipelineConfig, "connect", lambda config: HalfShut(config.url))
    spark: Any = None

    (row,) = reconcile_hour(spark, config, store, NOON, [topic])
    store.put({"reconciliation": [[row[name] for name in table_of("reconciliation").columns[:-3]] + ["clean", "", 0]]})
    reconcile_hour(spark, config, store, NOON, [topic])

    assert (row["group"], row["state"], row["why"]) == (group, "unknown", "local:0 could not be read")
    assert [row["state"] for row in reports.reconciliation(store, ReportQuery(NOON, NOON + HOUR, 9))] == ["clean"]


def test_unwatched_messages_are_not_clean() -> None:
    """Their disposition cannot be known."""
    counts = {"missing": 0, "unknown": 0, "unwatched": 1}

    assert hourly_reconciliation._state(counts) == "unknown"
    assert hourly_reconciliation._why(counts, []) == "some messages are older than the first sample of the group"


def test_missed_hours_are_reconciled_later(
    store: StatsStore, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most twelve per run, oldest first, within the retention, and unreadable hours again."""
    judged: list[int] = []
    unreadable: set[int] = set()

    def judge(_spark: object, _plan: PipelineConfig, _store: StatsStore, hour: datetime) -> list[dict[str, Any]]:
        judged.append((hour - NOON) // HOUR)
        return [{"published": int(judged[-1] not in unreadable)}]

    def run(hours: int) -> list[int]:
        judged.clear()
        due_hours.reconcile_due(spark, config, store, NOON + hours * HOUR + timedelta(minutes=5))
        return judged

    spark: Any = None
    monkeypatch.setattr(due_hours, "reconcile_hour", judge)

    assert run(0) == [-3, -2, -1]
    assert run(6) == [0, 1, 2, 3, 4, 5]
    unreadable.add(4)
    assert run(7) == [4, 5, 6]
    unreadable.add(7)
    assert run(11) == [7, 8, 9, 10]
    unreadable.clear()
    assert run(30) == [*range(7, 19), 27, 28, 29]
    assert run(31) == [*range(19, 31)]
    assert run(31 + 24 * 8)[0] == 31 + 24 - 1


def test_stuck_messages_are_removed_when_they_are_settled(
    spark: SparkSession, client: Client, topic: str, group: str, store: StatsStore, config: PipelineConfig
) -> None:
    """Operators must not investigate messages that are already settled."""
    fill(client, topic, 1)
    (got,) = messages(client, group, 1)
    at = milliseconds(datetime.now(UTC))
    gateway_events = GatewayEvents()
    events = [event("delivered", at, topic, group=group, delivery=7, client="c1", **place(got))]
    publish_batches(client, config.events_topic, gateway_events.batch(events, sent_at=at))

    assert find_stuck(spark, config, store) == 1
    (row,) = reports.stuck(store, ReportQuery(datetime.now(UTC), datetime.now(UTC), 10))
    client.ack(group, got["receipt"])
    assert find_stuck(spark, config, store) == 0

    assert (row["offset"], row["delivery"], row["client"]) == (got["offset"], 7, "c1")
    assert reports.stuck(store, ReportQuery(datetime.now(UTC), datetime.now(UTC), 10)) == []


def test_the_current_hour_is_not_reconciled() -> None:
    """Its messages may not be settled yet."""
    now = datetime(2026, 11, 16, 12, 7, tzinfo=UTC)

    assert whole_hours(now, 2) == [datetime(2026, 11, 16, hour, tzinfo=UTC) for hour in (10, 11)]
