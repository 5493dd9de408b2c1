"""The live queries: where they begin, what they refuse, and that a backfill puts right what they wrote."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from event_batches import Teller, event, tell
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mqgate.client import Client
from mqgate.core.message import instant, milliseconds
from mqgate.spark.pipelines import archive
from mqgate.spark.pipelines.backfill import backfill
from mqgate.spark.pipelines.plan import Plan
from mqgate.spark.pipelines.queries import CheckpointLost, OutputLost, start_archive, start_minutes
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore

MINUTE = 60_000


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True), is_writing=True)


@pytest.fixture
def plan(client: Client, topic: str, tmp_path: Path) -> Plan:
    return Plan(url=client.transport.url, directory=tmp_path, events_topic=topic, trigger=timedelta(seconds=0.1))


def done(start: Callable[[], StreamingQuery]) -> None:
    query = start()
    query.processAllAvailable()
    query.stop()


def counted(store: StatsStore) -> dict[int, int]:
    return dict(store.select("SELECT at, sum(n) FROM stats_traffic_minute GROUP BY at"))


def test_a_lost_checkpoint_is_told_and_can_be_renewed_where_the_output_ends(
    spark: SparkSession, client: Client, topic: str, store: StatsStore, plan: Plan
) -> None:
    """From the beginning everything would be counted again. And the other way round: output that is gone is told."""
    now = milliseconds(datetime.now(UTC))
    then = now - now % MINUTE - 10 * MINUTE + MINUTE // 2
    teller = Teller()
    tell(client, topic, teller.batch([event("acked", then)] * 3, sent_at=now))
    done(lambda: start_minutes(spark, plan, store))
    done(lambda: start_archive(spark, plan))
    shutil.rmtree(plan.directory / "checkpoints")
    tell(client, topic, teller.batch([event("acked", then)] * 4, sent_at=now))

    with pytest.raises(CheckpointLost, match="--renew minutes"):
        start_minutes(spark, plan, store)
    with pytest.raises(CheckpointLost, match="--renew archive"):
        start_archive(spark, plan)
    done(lambda: start_minutes(spark, plan, store, is_renewed=True))
    done(lambda: start_archive(spark, plan, is_renewed=True))

    minute = then - MINUTE // 2
    assert counted(store) == {minute: 7}
    assert sum(queues for topics in archive.positions(plan.archive_path).values() for queues in topics.values()) == 2
    empty = StatsStore(SqliteDatabase(plan.directory / "other.sqlite3", is_writing=True), is_writing=True)
    with pytest.raises(OutputLost, match="move the checkpoint away"):
        start_minutes(spark, plan, empty)

    # What somebody spoiled by hand is counted again, from the topic and from the archive.
    for is_archived in (False, True):
        store.put({"traffic_minute": [(minute, topic, "acked", "", "", "", "", 100, 0, 0)]})
        backfill(spark, plan, store, instant(minute), instant(minute + MINUTE), is_archived=is_archived)
        assert counted(store) == {minute: 7}
