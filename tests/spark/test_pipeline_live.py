"""The live pipeline counts each event once, in the right minute, despite repeated, late or invalid batches."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from event_batches import NOON_MS, GatewayEvents, event, publish_batches, raw
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mqgate.client import Client
from mqgate.core.events import LAG, POLLS
from mqgate.core.message import milliseconds
from mqgate.spark.pipelines import live
from mqgate.spark.pipelines.decode import MESSAGE, Raw, decode, decode_messages
from mqgate.spark.pipelines.live import batch_counter, classify_batches, figures
from mqgate.spark.pipelines.minute import _bucket
from mqgate.stats.buckets import bucket_of
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore

MINUTE = 60_000
TABLES = ("traffic_minute", "latency_minute", "quarantine", "positions", "applied")
WEEK = timedelta(days=7)


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True), is_writing=True)


def logged(spark: SparkSession, messages: Iterable[Raw]) -> DataFrame:
    frame = spark.createDataFrame([message._replace(stored_at=None) for message in messages], MESSAGE)
    return frame.withColumn("storedAt", F.timestamp_millis(F.lit(NOON_MS)))


def decoded(spark: SparkSession, messages: Iterable[Raw]) -> DataFrame:
    return decode_messages(logged(spark, messages))


def tables(spark: SparkSession, *batches: Any) -> dict[str, list[Any]]:
    return figures(decoded(spark, [raw(*batch, offset=number) for number, batch in enumerate(batches)]), WEEK)


def test_spark_computes_the_same_buckets(spark: SparkSession) -> None:
    """Python and Spark compute the bucket separately and must agree."""
    values = [0, 1, 2, 3, 4, 5, 11, 12, 90, 91, 1000, 2**20, 2**20 + 1, 2**29, 2**29 + 1, 2**40]
    frame = spark.createDataFrame([(value,) for value in values], "ms BIGINT")

    found = [row.b for row in frame.select(_bucket(F.col("ms")).alias("b")).collect()]

    assert found == [bucket_of(value) for value in values]


def test_figures_match_the_events(spark: SparkSession) -> None:
    """Counts, bytes, redeliveries, empty polls, latencies and lag are stored per minute and key."""
    gateway_events = GatewayEvents()
    settled = {"group": "billing", "client": "c1", "stored_at": NOON_MS - 500}
    events = [
        event("published", producer="shop", bytes=10),
        event("published", producer="shop", bytes=32, at=NOON_MS + 59_999),
        event("published", producer="shop", bytes=5, at=NOON_MS + MINUTE),
        event("refused", producer="shop", outcome="too_large"),
        event("delivered", delivery=1, **settled),
        event("delivered", delivery=2, **settled),
        event("acked", granted_at=NOON_MS - 90, outcome="applied", **settled),
        event("filtered", count=40, group="billing"),
    ]
    sample = {"at": NOON_MS + 5, "topic": "orders", "group": "billing", "queue": "local:0", "min": 0, "max": 9}
    counts = {"committed": 3, "ready": 4, "leased": 1, "waiting": 1, "oldest_at": NOON_MS - 7000}
    poll = {"at": NOON_MS, "topic": "orders", "group": "billing", "client": "c1", "outcome": "empty", "count": 17}

    found = tables(
        spark,
        gateway_events.batch(events),
        gateway_events.batch([sample | counts, sample | counts | {"at": NOON_MS + 9, "ready": 2}], LAG),
        gateway_events.batch([poll], POLLS),
    )

    traffic = {
        (row.at - NOON_MS, row.kind, row.producer, row.group, row.client, row.outcome): row
        for row in found["traffic_minute"]
    }
    published = traffic[0, "published", "shop", "", "", ""]
    assert (published.n, published.bytes) == (2, 42)
    assert traffic[MINUTE, "published", "shop", "", "", ""].n == 1
    assert traffic[0, "refused", "shop", "", "", "too_large"].n == 1
    delivered = traffic[0, "delivered", "", "billing", "c1", ""]
    assert (delivered.n, delivered.redelivered) == (2, 1)
    assert traffic[0, "filtered", "", "billing", "", ""].n == 40
    latency = {(row.group, row.measure): (row.bucket, row.n) for row in found["latency_minute"]}
    assert latency == {
        ("billing", "delivery"): (bucket_of(500), 1),
        ("billing", "ack"): (bucket_of(500), 1),
        ("billing", "work"): (bucket_of(90), 1),
    }
    (lag,) = found["lag_minute"]
    assert (lag.at, lag.queue, lag.sampled_at, lag.ready, lag.oldest_at) == (
        NOON_MS,
        "local:0",
        NOON_MS + 9,
        2,
        NOON_MS - 7000,
    )
    assert [(row.client, row.outcome, row.n) for row in found["polls_minute"]] == [("c1", "empty", 17)]
    assert found["late"] == []


def test_events_outside_the_retention_are_counted_as_late(spark: SparkSession) -> None:
    """Events that are too old or in the future are neither dropped silently nor stored as minutes."""
    gateway_events = GatewayEvents()
    old, ahead = NOON_MS - 8 * 86_400_000, NOON_MS + 86_400_000
    names = {"topic": "orders", "group": "billing"}
    poll = {"at": old, "client": "c1", "outcome": "empty", "count": 17, **names}
    counts = dict.fromkeys(("min", "max", "committed", "ready", "leased", "waiting"), 0)

    found = tables(
        spark,
        gateway_events.batch([event("acked", old), event("acked", ahead), event("acked", NOON_MS - MINUTE)]),
        gateway_events.batch([poll], POLLS),
        gateway_events.batch([{"at": ahead, "queue": "local:0", **counts, **names}], LAG),
    )

    assert sorted((row.at, row.kind, row.n) for row in found["late"]) == [
        (NOON_MS, "acked", 2),
        (NOON_MS, "lag", 1),
        (NOON_MS, "polls", 17),
    ]
    assert [(row.at, row.n) for row in found["traffic_minute"]] == [(NOON_MS - MINUTE, 1)]
    assert (found["polls_minute"], found["lag_minute"]) == ([], [])


def test_repeated_and_invalid_batches_are_classified() -> None:
    """A gateway repeats a batch whose outcome is unknown, and the copy must not be counted."""
    gateway_events = GatewayEvents()
    first, second = gateway_events.batch([event("acked")]), gateway_events.batch([event("acked")])
    messages = [raw(*first, offset=4), raw(*second, offset=5), raw(*first, offset=6), raw({}, b"?", offset=7)]
    about = [row for message in messages for row in decode(message).to_pylist() if row["table"] != "events"]

    found = classify_batches(about, lambda keys: {("gw-1", "i-1", 2)} & set(keys))

    assert [row[:3] for row in found.rows["event_batches"]] == [("gw-1", "i-1", 1)]
    assert found.repeated == [("local:0", 5), ("local:0", 6)]
    assert [row[:3] for row in found.rows["quarantine"]] == [("events", "local:0", 7)]
    assert found.positions["positions"] == [("minutes", "events", "local:0", 8)]


def test_a_restored_checkpoint_loses_nothing(spark: SparkSession, store: StatsStore) -> None:
    """Its next batch has a number that is already applied, but contains new messages."""
    gateway_events, take = GatewayEvents(), batch_counter(store, WEEK)
    first, second, third = (
        raw(*gateway_events.batch([event("acked", NOON_MS - minutes * MINUTE)] * 10**place), offset=place)
        for place, minutes in enumerate((0, 0, 90))
    )
    take(logged(spark, [first]), 7)
    take(logged(spark, [second]), 8)
    store.roll_up()
    store.replace("event_batches", [])

    take(logged(spark, [second, third]), 8)
    take(logged(spark, [second, third]), 8)

    store.roll_up()
    for step in ("minute", "hour"):
        assert store.select(f"SELECT n FROM stats_traffic_{step} ORDER BY at") == [(100,), (11,)]  # noqa: S608
    assert store.read("positions", "minutes") == [("events", "local:0", 3)]


def drained(spark: SparkSession, client: Client, topic: str, take: Callable[..., None], checkpoint: Path) -> None:
    options = {"url": client.url, "subscribe": topic, "startingOffsets": "earliest", "properties": "json"}
    stream = spark.readStream.format("mqgate").options(**options).schema(MESSAGE).load()
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_of_events_is_counted_once(
    spark: SparkSession, client: Client, topic: str, store: StatsStore, tmp_path: Path
) -> None:
    """It contains a repeated batch and an unknown version, and is read again under a new checkpoint."""
    now = milliseconds(datetime.now(UTC))
    # In the middle of a minute: what the way to the log takes on a busy machine is a matter of seconds.
    then = now - now % MINUTE - 5 * MINUTE + MINUTE // 2
    right, wrong = GatewayEvents("gw-1"), GatewayEvents("gw-2", clock_error=120_000)
    twice = right.batch([event("published", then)] * 3, sent_at=now)
    publish_batches(
        client,
        topic,
        twice,
        wrong.batch([event("acked", then + MINUTE, group="g")] * 2, sent_at=now),
        twice,
        right.batch(sent_at=now, schema="events/9"),
        right.batch([event("published", then)], sent_at=now),
    )

    drained(spark, client, topic, batch_counter(store, WEEK), tmp_path / "checkpoint")
    drained(spark, client, topic, batch_counter(store, WEEK), tmp_path / "another")

    by_minute = {(kind, at): n for kind, at, n in store.select("SELECT kind, at, n FROM stats_traffic_minute")}
    minute = then - MINUTE // 2
    assert by_minute == {("published", minute): 4, ("acked", minute + MINUTE): 2}
    assert store.select("SELECT gateway, schema FROM stats_quarantine") == [("gw-1", "events/9")]
    assert len(store.select("SELECT 1 FROM stats_event_batches")) == 3


def uncommitted(checkpoint: Path) -> None:
    """Remove the commit of the last micro-batch, as after a crash between its output and its commit."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def all_of(store: StatsStore) -> dict[str, list[tuple[Any, ...]]]:
    return {name: store.select(f"SELECT * FROM stats_{name} ORDER BY 1, 2, 3") for name in TABLES}  # noqa: S608 - our own names


def test_a_repeated_micro_batch_is_skipped_by_its_number(
    spark: SparkSession,
    client: Client,
    topic: str,
    store: StatsStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This holds even if the batch numbers of the gateways are not stored, and the batch is not processed."""
    now = milliseconds(datetime.now(UTC))
    settled = event("acked", now - 5 * MINUTE, group="g", stored_at=now - 6 * MINUTE)
    publish_batches(
        client,
        topic,
        GatewayEvents().batch([settled] * 3, sent_at=now),
        GatewayEvents().batch(sent_at=now, schema="events/9"),
    )
    drained(spark, client, topic, batch_counter(store, WEEK), tmp_path / "checkpoint")
    before = all_of(store)

    store.replace("event_batches", [])
    uncommitted(tmp_path / "checkpoint")
    drained(spark, client, topic, batch_counter(store, WEEK), tmp_path / "checkpoint")

    assert all_of(store) == before
    assert store.select("SELECT sum(n) FROM stats_traffic_minute") == [(3,)]

    monkeypatch.delattr(live, "decode_messages")
    uncommitted(tmp_path / "checkpoint")
    drained(spark, client, topic, batch_counter(store, WEEK), tmp_path / "checkpoint")
