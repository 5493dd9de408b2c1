"""Batch reads: a query returns the messages that were published between its bounds."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark_calls import fill, frame, retained

from mqgate.client import Client


def numbers(rows: Any) -> list[int]:
    return sorted(int(bytes(row.body)) for row in rows.select("body").collect())


def test_rows_equal_the_messages(spark: SparkSession, client: Client, topic: str) -> None:
    """Every column has the value that the gateway returns, including bytes and time."""
    published = client.publish(topic, b"\xff\x00", key="k", tag="t", properties={"a": "1", "b": "ü"})
    plain = client.publish(topic, "plain")

    rows = {row.id: row for row in frame(spark, client, subscribe=topic).collect()}

    assert set(rows) == {published["id"], plain["id"]}
    row = rows[published["id"]].asDict()
    stored_at = row.pop("storedAt")
    assert row == {
        "id": published["id"],
        "topic": topic,
        "queue": published["queue"],
        "offset": published["offset"],
        "key": "k",
        "tag": "t",
        "properties": {"a": "1", "b": "ü"},
        "body": bytearray(b"\xff\x00"),
    }
    assert stored_at.isoformat(timespec="milliseconds") + "Z" == published["storedAt"]
    assert rows[plain["id"]].properties is None


def test_a_schema_prunes_columns_and_sql_works(spark: SparkSession, client: Client, topic: str) -> None:
    """Analysts use SQL and text columns."""
    fill(client, topic, 10)

    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders (body STRING, queue STRING) USING mqgate "
        f"OPTIONS (url '{client.url}', subscribe '{topic}')"
    )
    (row,) = spark.sql("SELECT sum(int(body)) AS total, count(DISTINCT queue) AS queues FROM orders").collect()

    assert (row.total, row.queues) == (45, 4)


def test_offsets_bound_a_read(spark: SparkSession, client: Client, topic: str) -> None:
    """The start is inclusive and the end exclusive. -2 and -1 are the ends of a queue."""
    fill(client, topic, 40)
    ends = {queue["queue"]: queue["max"] for queue in client.queues(topic)}
    first, second, third, fourth = sorted(ends)
    starting = {first: -2, second: 1, third: ends[third], fourth: -1}
    ending = {first: 2, second: -1, third: -1, fourth: -1}

    rows = frame(
        spark,
        client,
        subscribe=topic,
        startingOffsets=json.dumps({topic: starting}),
        endingOffsets=json.dumps({topic: ending}),
    )

    found = sorted((row.queue, row.offset) for row in rows.select("queue", "offset").collect())
    assert found == [(first, 0), (first, 1), *((second, offset) for offset in range(1, ends[second]))]


def test_times_bound_a_read(spark: SparkSession, client: Client, topic: str) -> None:
    """The start is inclusive and the end exclusive, for all queues or per queue."""
    fill(client, topic, 20)
    middle = client.publish(topic, "100")["storedAt"]
    times = {queue["queue"]: middle for queue in client.queues(topic)}

    later = frame(spark, client, subscribe=topic, startingTimestamp=middle, startingOffsetsByTimestampStrategy="latest")
    earlier = frame(spark, client, subscribe=topic, endingOffsetsByTimestamp=json.dumps({topic: times}))

    assert 100 in numbers(later)
    assert 100 not in numbers(earlier)
    assert sorted(numbers(later) + numbers(earlier)) == [*range(20), 100]


def test_a_read_can_start_at_the_offsets_of_a_group(spark: SparkSession, client: Client, topic: str) -> None:
    """It returns exactly the messages that the group has not settled."""
    group = f"g-{topic}"
    client.groups.put(group, {"topic": topic, "mode": "queue"})
    fill(client, topic, 12)
    client.seek(group, "latest")
    fill(client, topic, 8, start=12)

    rows = frame(spark, client, subscribe=topic, startingOffsets="committed", group=group)

    assert numbers(rows) == list(range(12, 20))


def test_queues_and_topics_can_be_selected(spark: SparkSession, client: Client, topic: str) -> None:
    """By list, by pattern, or queue by queue."""
    other = f"{topic}-other"
    client.topics.put(other, {"queues": 1})
    fill(client, topic, 8)
    fill(client, other, 3, start=100)
    (first, *_) = [queue for queue in client.queues(topic) if queue["max"]]

    both = frame(spark, client, subscribe=f"{topic},{other}")
    matching = frame(spark, client, subscribePattern=f"{topic}.*")
    assigned = frame(spark, client, assign=json.dumps({topic: [first["queue"]]}))

    assert numbers(both) == numbers(matching) == [*range(8), 100, 101, 102]
    assert assigned.count() == first["max"]


def test_the_number_of_tasks_follows_the_options(spark: SparkSession, client: Client, topic: str) -> None:
    """Long queues are split and short queues combined, and the rows stay the same."""
    fill(client, topic, 40)

    default = frame(spark, client, subscribe=topic)
    few = frame(spark, client, subscribe=topic, maxPartitions=2)
    many = frame(spark, client, subscribe=topic, minPartitions=9)
    short = frame(spark, client, subscribe=topic, maxRecordsPerPartition=2)

    assert default.rdd.getNumPartitions() == 4
    assert few.rdd.getNumPartitions() == 2
    assert many.rdd.getNumPartitions() >= 9
    assert short.rdd.getNumPartitions() >= 20
    assert numbers(few) == numbers(many) == numbers(short) == list(range(40))


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, client: Client, topic: str) -> None:
    """The frame has no rows, but the full schema."""
    rows = frame(spark, client, subscribe=topic)

    assert rows.count() == 0
    assert rows.columns == ["id", "topic", "queue", "offset", "key", "tag", "properties", "body", "storedAt"]


def test_deleted_messages_fail_a_read_or_are_skipped(spark: SparkSession, client: Client, topic: str) -> None:
    """By default, a read of offsets that retention deleted fails."""
    fill(client, topic, 12)
    zeros = json.dumps({topic: {queue["queue"]: 0 for queue in client.queues(topic)}})
    retained(client, topic)
    fill(client, topic, 4, start=50)

    strict = frame(spark, client, subscribe=topic, startingOffsets=zeros)
    lenient = frame(spark, client, subscribe=topic, startingOffsets=zeros, failOnDataLoss="false")

    with pytest.raises(Exception, match="deleted by retention"):
        strict.collect()
    assert numbers(lenient) == [50, 51, 52, 53]


def test_undecodable_bodies_fail_or_are_null(spark: SparkSession, client: Client, topic: str) -> None:
    """As text they fail the query with their offset, or are null. As bytes they are unchanged."""
    client.publish(topic, b"\xff\xfe")

    as_text = frame(spark, client, "body STRING", subscribe=topic)
    or_null = frame(spark, client, "body STRING", subscribe=topic, undecodable="null")

    with pytest.raises(Exception, match="is not UTF-8"):
        as_text.collect()
    assert [row.body for row in or_null.collect()] == [None]


@pytest.mark.parametrize(
    ("options", "schema", "expected"),
    [
        ({"subscribe": "no-such-topic"}, None, "no-such-topic is not registered"),
        ({"startingOfsets": "latest"}, None, "did you mean startingOffsets"),
        ({"startingOffsets": "{"}, None, "option startingOffsets is not JSON"),
        ({"startingOffsets": '{"other": {"local:0": 1}}'}, None, "the given offsets do not name"),
        ({}, "id STRING, price INT", "column price does not exist"),
        ({"url": "http://127.0.0.1:1", "retries": "0"}, None, "option url: no response from http://127.0.0.1:1"),
        ({"group": "no-such-group", "startingOffsets": "committed"}, None, "no-such-group"),
        ({"assign": '{"no-such-topic": ["local:9"]}', "subscribe": None}, None, "no-such-topic is not registered"),
    ],
)
def test_invalid_input_is_an_error_before_any_task(
    spark: SparkSession, client: Client, topic: str, options: dict[str, Any], schema: str | None, expected: str
) -> None:
    """The driver reports the error in terms of the options."""
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    both = {name: value for name, value in ({"subscribe": topic} | options).items() if value is not None}
    reader = spark.read.format("mqgate").options(**{"url": client.url, **both})

    with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark wraps what a source raises in errors of its own
        (reader.schema(schema) if schema else reader).load().collect()

    assert expected in str(refused.value)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs
