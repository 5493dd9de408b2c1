"""The live queries: start positions, rejected states, and the correction of figures by a backfill."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from event_batches import GatewayEvents, event, publish_batches
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark_calls import retained

from mqgate.client import Client
from mqgate.core.message import instant, milliseconds
from mqgate.spark.pipelines import archive
from mqgate.spark.pipelines.backfill import SourceTruncated, _is_truncated, backfill
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.queries import CheckpointLost, OutputLost, start_archive, start_minutes
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore

MINUTE = 60_000


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True), is_writing=True)


@pytest.fixture
def config(client: Client, topic: str, tmp_path: Path) -> PipelineConfig:
    return PipelineConfig(url=client.url, directory=tmp_path, events_topic=topic, trigger=timedelta(seconds=0.1))


def done(start: Callable[[], StreamingQuery]) -> None:
    query = start()
    query.processAllAvailable()
    query.stop()


def counted(store: StatsStore) -> dict[int, int]:
    return dict(store.select("SELECT at, sum(n) FROM stats_traffic_minute GROUP BY at"))


def publish_acks(client: Client, topic: str, gateway_events: GatewayEvents, count: int) -> int:
    """Tell of acks in the middle of a minute, so that a slow way to the log moves none of them; the minute."""
    now = milliseconds(datetime.now(UTC))
    minute = now - now % MINUTE - 10 * MINUTE
    publish_batches(client, topic, gateway_events.batch([event("acked", minute + MINUTE // 2)] * count, sent_at=now))
    return minute


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_lost_output_and_lost_checkpoints_are_reported_and_renewed(
    spark: SparkSession, client: Client, topic: str, store: StatsStore, config: PipelineConfig
) -> None:
    """A start from the beginning would count everything again. A backfill corrects damaged figures."""
    gateway_events = GatewayEvents()
    publish_acks(client, topic, gateway_events, 3)
    done(lambda: start_minutes(spark, config, store))
    shutil.rmtree(config.directory / "checkpoints")
    publish_acks(client, topic, gateway_events, 4)

    with pytest.raises(CheckpointLost, match="--renew minutes"):
        start_minutes(spark, config, store)
    done(lambda: start_minutes(spark, config, store, is_renewed=True))
    empty = StatsStore(SqliteDatabase(config.directory / "other.sqlite3", is_writing=True), is_writing=True)
    with pytest.raises(OutputLost, match="move the checkpoint away"):
        start_minutes(spark, config, empty)
    before = counted(store)
    assert sum(before.values()) == 7

    store.put({"traffic_minute": [(min(before), topic, "acked", "", "", "", "", 100, 0, 0)]})
    backfill(spark, config, store, instant(min(before)), instant(max(before) + MINUTE), is_archived=False)
    assert counted(store) == before

    retained(client, topic)
    with pytest.raises(SourceTruncated, match="--archive"):
        backfill(spark, config, store, instant(min(before)), instant(max(before) + MINUTE), is_archived=False)
    assert counted(store) == before


@pytest.mark.parametrize(
    ("queues", "is_truncated"),
    [
        ([("a:0", 0, 0), ("a:1", 0, 0)], False),
        ([("a:0", 7, 9), ("a:1", 5, 5)], False),
        ([("a:0", 7, 7), ("a:1", 0, 0)], True),
        ([("a:0", 7, None)], True),
        ([("a:0", 7, 9), ("b:0", 7, 7)], True),
    ],
)
def test_a_backfill_from_a_truncated_topic_is_rejected(
    queues: list[tuple[str, int, int | None]], *, is_truncated: bool
) -> None:
    """An idle queue next to a queue with older events has lost nothing."""
    bounds = [{"queue": name, "min": least, "offsetAt": found} for name, least, found in queues]

    assert _is_truncated(bounds) == is_truncated


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_archive_without_its_checkpoint_continues_where_it_ends(
    spark: SparkSession, client: Client, topic: str, store: StatsStore, config: PipelineConfig
) -> None:
    """Figures can be counted from it when the topic no longer contains the events."""
    gateway_events = GatewayEvents()
    minute = publish_acks(client, topic, gateway_events, 3)
    done(lambda: start_archive(spark, config))
    shutil.rmtree(config.directory / "checkpoints")
    publish_acks(client, topic, gateway_events, 4)
    (whole,) = config.archive_path.glob("topic=*/hour=*/*.parquet")
    left = whole.with_name("gone-000000001-0.parquet")
    shutil.copy(whole, left)
    (config.archive_path / "_manifest" / "gone-000000001.plan").write_text(
        json.dumps([str(left.relative_to(config.archive_path))])
    )

    with pytest.raises(CheckpointLost, match="--renew archive"):
        start_archive(spark, config)
    done(lambda: start_archive(spark, config, is_renewed=True))

    assert not left.exists(), "its batch came again by another name"
    assert (
        sum(offset for queues in archive.next_offsets(config.archive_path).values() for offset in queues.values()) == 2
    )
    backfill(spark, config, store, instant(minute), instant(minute + 10 * MINUTE), is_archived=True)
    assert sum(counted(store).values()) == 7
