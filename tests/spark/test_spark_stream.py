"""Streaming reads through Spark: batches, checkpoints, and progress reports."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_calls import bodies, drained, fill, retained, stream

from mqgate.client import Client


def test_a_stream_reads_everything_once_in_limited_batches(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    """An AvailableNow query respects the limit and ends at the end."""
    fill(client, topic, 100)

    batches = drained(stream(spark, client, subscribe=topic, maxOffsetsPerTrigger=40), tmp_path)

    assert [len(batch) for batch in batches] == [40, 40, 20]
    assert bodies(batches) == list(range(100))


def test_a_restart_continues_from_the_checkpoint(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    """It reads new messages, also in queues that were added meanwhile, and repeats none."""
    fill(client, topic, 10)
    rows = stream(spark, client, subscribe=topic)
    first = drained(rows, tmp_path)
    client.topics.put(topic, {"queues": 8})
    fill(client, topic, 30, start=10)

    second = drained(rows, tmp_path)

    assert bodies(first) == list(range(10))
    assert bodies(second) == list(range(10, 40))


def test_a_running_query_reads_new_queues(spark: SparkSession, client: Client, topic: str, tmp_path: Path) -> None:
    """It finds them with its next batch."""
    fill(client, topic, 5)
    query = (
        stream(spark, client, "body STRING", subscribe=topic)
        .writeStream.format("memory")
        .queryName(f"seen_{topic.replace('-', '_')}")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        query.processAllAvailable()
        client.topics.put(topic, {"queues": 8})
        fill(client, topic, 40, start=5)
        query.processAllAvailable()
        seen = spark.table(query.name).collect()
    finally:
        query.stop()

    assert sorted(int(row.body) for row in seen) == list(range(45))


@pytest.mark.parametrize("policy", ["true", "false"])
def test_deleted_messages_fail_a_restart_or_are_skipped(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path, policy: str
) -> None:
    """The query was stopped for longer than the retention."""
    fill(client, topic, 10)
    rows = stream(spark, client, subscribe=topic, failOnDataLoss=policy)
    drained(rows, tmp_path)
    fill(client, topic, 10, start=10)
    retained(client, topic)
    fill(client, topic, 10, start=20)

    if policy == "true":
        with pytest.raises(Exception, match="deleted by retention"):
            drained(rows, tmp_path)
    else:
        assert bodies(drained(rows, tmp_path)) == list(range(20, 30))


def test_progress_reports_contain_the_lag_by_queue(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    """Each report has the ends of the queues and the end of the batch."""
    fill(client, topic, 50)
    query = (
        stream(spark, client, subscribe=topic, maxOffsetsPerTrigger=10)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    first = query.recentProgress[0]["sources"][0]

    assert sum(json.loads(first["latestOffset"])[topic].values()) == 50
    assert sum(json.loads(first["endOffset"])[topic].values()) == 10


def test_the_key_is_written_nowhere(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is not in the config, the checkpoint or the output."""
    fill(client, topic, 5)
    rows = stream(spark, client, subscribe=topic, key="hush-hush-key")

    drained(rows, tmp_path)
    rows.explain(extended=True)
    printed = capfd.readouterr()

    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert written
    assert b"hush-hush" not in written
    assert "hush-hush" not in printed.out + printed.err


def test_a_missing_topic_fails_the_query_with_the_reason(spark: SparkSession, client: Client, tmp_path: Path) -> None:
    """The driver reports it, and no task runs."""
    with pytest.raises(Exception, match="no-such-topic is not registered"):
        drained(stream(spark, client, subscribe="no-such-topic"), tmp_path)
