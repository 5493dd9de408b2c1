"""The streaming reader, called directly as Spark calls it, without Spark."""

import json
import logging
import pickle
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_calls import fill, retained

from mqgate.client import Client
from mqgate.spark.columns import full_schema
from mqgate.spark.offset_ranges import Positions
from mqgate.spark.options import parse
from mqgate.spark.reads import DataLost, Task
from mqgate.spark.stream_reader import StreamReader
from mqgate.testing.server_process import ServerProcess

ALL = ReadAllAvailable()


def reader(client: Client, schema: StructType | None = None, **options: str) -> StreamReader:
    both = {"url": client.url, "startingOffsets": "earliest", **options}
    return StreamReader(parse(both, is_stream=True), schema or full_schema("map"))


def read(stream: StreamReader, start: Positions, end: Positions) -> list[int]:
    """Return the bodies of a batch as its tasks read them."""
    rows: list[Any] = []
    for task in stream.partitions(start, end):
        for batch in stream.read(task):
            rows += batch.column("body").to_pylist()
    return sorted(int(body) for body in rows)


def test_each_batch_starts_where_the_last_one_ended(client: Client, topic: str) -> None:
    """Without new messages there is no batch."""
    stream = reader(client, subscribe=topic)
    start = stream.initialOffset()
    fill(client, topic, 10)
    first = stream.latestOffset(start, ALL)
    fill(client, topic, 5, start=10)
    second = stream.latestOffset(first, ALL)

    assert read(stream, start, first) == list(range(10))
    assert read(stream, first, second) == list(range(10, 15))
    assert stream.latestOffset(second, ALL) == second


def test_a_stream_starts_at_the_end_by_default(client: Client, topic: str) -> None:
    """Earlier messages are not part of the stream."""
    fill(client, topic, 10)
    stream = reader(client, subscribe=topic, startingOffsets="latest")
    start = stream.initialOffset()
    fill(client, topic, 3, start=10)

    assert read(stream, start, stream.latestOffset(start, ALL)) == [10, 11, 12]


def test_a_limit_is_respected(client: Client, topic: str) -> None:
    """The default limit is the option, and no batch exceeds it."""
    fill(client, topic, 50)
    stream = reader(client, subscribe=topic, maxOffsetsPerTrigger="20")
    start, found = stream.initialOffset(), []
    for _ in range(3):
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        found.append(read(stream, start, end))
        start = end

    assert stream.getDefaultReadLimit() == ReadMaxRows(20)
    assert [len(batch) for batch in found] == [20, 20, 10]
    assert sorted(number for batch in found for number in batch) == list(range(50))


def test_a_small_backlog_waits_for_more_messages_or_the_delay(client: Client, topic: str) -> None:
    """Small batches are expensive, but messages must not wait forever."""
    patient = reader(client, subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    hasty = reader(client, subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1ms")
    start = patient.initialOffset()
    fill(client, topic, 9)

    assert patient.latestOffset(start, ALL) == start
    assert read(hasty, start, hasty.latestOffset(start, ALL)) == list(range(9))

    fill(client, topic, 1, start=9)

    assert read(patient, start, patient.latestOffset(start, ALL)) == list(range(10))


def test_available_now_stops_at_the_ends_of_its_start(client: Client, topic: str) -> None:
    """Later messages and queues belong to the next run, so that the query ends."""
    fill(client, topic, 6)
    stream = reader(client, subscribe=topic, minOffsetsPerTrigger="1000")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    fill(client, topic, 6, start=6)
    client.topics.put(topic, {"queues": 8})

    end = stream.latestOffset(start, ALL)

    assert read(stream, start, end) == list(range(6))
    assert stream.latestOffset(end, ALL) == end


def test_added_queues_are_read_from_their_beginning(client: Client, topic: str) -> None:
    """This requires neither a restart nor an option."""
    stream = reader(client, subscribe=topic)
    start = stream.latestOffset(stream.initialOffset(), ALL)
    client.topics.put(topic, {"queues": 8})
    fill(client, topic, 64)

    end = stream.latestOffset(start, ALL)

    assert len(end[topic]) == 8
    assert read(stream, start, end) == list(range(64))


def test_new_matching_topics_are_read_while_running(client: Client, topic: str) -> None:
    """This is the purpose of a pattern."""
    stream = reader(client, subscribePattern=f"{topic}.*")
    start = stream.initialOffset()
    client.topics.put(f"{topic}-new", {"queues": 2})
    fill(client, f"{topic}-new", 7)

    end = stream.latestOffset(start, ALL)

    assert set(end) == {topic, f"{topic}-new"}
    assert read(stream, start, end) == list(range(7))


def test_deleted_messages_fail_the_query_by_default(client: Client, topic: str) -> None:
    """A query must not skip lost messages without permission."""
    stream = reader(client, subscribe=topic)
    start = stream.initialOffset()
    fill(client, topic, 10)
    retained(client, topic)
    fill(client, topic, 2, start=10)

    with pytest.raises(DataLost, match=r"deleted by retention.*failOnDataLoss"):
        stream.partitions(start, stream.latestOffset(start, ALL))


def test_deleted_messages_may_be_skipped(client: Client, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """The warning contains their number, and the remaining messages are read."""
    stream = reader(client, subscribe=topic, failOnDataLoss="false", minPartitions="1")
    start = stream.initialOffset()
    fill(client, topic, 10)
    retained(client, topic)
    fill(client, topic, 2, start=10)

    with caplog.at_level(logging.WARNING):
        found = read(stream, start, stream.latestOffset(start, ALL))

    assert found == [10, 11]
    lost = [record.args for record in caplog.records]
    assert sum(int(str(args).split("'")[1].split()[0]) for args in lost) == 10


def test_messages_deleted_between_planning_and_reading_are_reported(client: Client, topic: str) -> None:
    """A task may find that its messages no longer exist."""
    fill(client, topic, 10)
    strict = reader(client, subscribe=topic)
    lenient = reader(client, subscribe=topic, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    tasks = strict.partitions(start, end)
    retained(client, topic)

    with pytest.raises(DataLost):
        [list(strict.read(task)) for task in tasks]
    assert [list(lenient.read(task)) for task in tasks] == [[] for _ in tasks]


@pytest.mark.parametrize("schema", [full_schema("map"), StructType([StructField("body", BinaryType())])])
def test_a_message_missing_in_the_middle_is_reported_or_skipped(
    gateway: ServerProcess, client: Client, topic: str, schema: StructType
) -> None:
    """The following messages are read once, up to the requested end."""
    client.topics.put(f"{topic}-one", {"queues": 1})
    ids = fill(client, f"{topic}-one", 10)
    with closing(sqlite3.connect(gateway.directory / "mqgate.db", timeout=30)) as database:
        assert database.execute("DELETE FROM message WHERE id = ?", (ids[4],)).rowcount == 1
        database.commit()
    strict, lenient = (
        reader(client, schema, subscribe=f"{topic}-one", failOnDataLoss=policy) for policy in ("true", "false")
    )
    start = lenient.initialOffset()

    for end in (10, 6):
        found = read(lenient, start, {f"{topic}-one": {"local:0": end}})
        assert found == [number for number in range(end) if number != 4]
    with pytest.raises(DataLost, match=r"1 messages of .* messages are missing from offset 0 to 10"):
        read(strict, start, strict.latestOffset(start, ALL))


@pytest.mark.parametrize("policy", ["true", "false"])
def test_a_recreated_topic_fails_or_is_read_from_its_beginning(client: Client, topic: str, policy: str) -> None:
    """Its offsets start below the position, and its messages are never skipped."""
    fill(client, topic, 20)
    stream = reader(client, subscribe=topic, failOnDataLoss=policy)
    start = stream.latestOffset(stream.initialOffset(), ALL)
    client.topics.delete(topic)
    client.topics.put(topic, {"queues": 4})
    fill(client, topic, 8, start=100)

    end = stream.latestOffset(start, ALL)

    if policy == "true":
        with pytest.raises(DataLost, match="recreated"):
            stream.partitions(start, end)
    else:
        assert read(stream, start, end) == list(range(100, 108))
        assert stream.latestOffset(end, ALL) == end


@pytest.mark.parametrize("policy", ["true", "false"])
def test_a_removed_queue_is_reported(client: Client, topic: str, policy: str) -> None:
    """The position contains a queue that no longer exists."""
    fill(client, topic, 20)
    stream = reader(client, subscribe=topic, failOnDataLoss=policy)
    start = stream.latestOffset(stream.initialOffset(), ALL)
    client.topics.delete(topic)
    client.topics.put(topic, {"queues": 1})

    if policy == "true":
        with pytest.raises(DataLost, match="the queue no longer exists"):
            stream.latestOffset(start, ALL)
    else:
        end = stream.latestOffset(start, ALL)
        assert set(end[topic]) == set(start[topic]), "a position is never forgotten"
        assert read(stream, start, end) == []


def test_a_repeated_batch_is_the_same(client: Client, topic: str) -> None:
    """After a crash, another process plans the batch again from the logged positions."""
    fill(client, topic, 30)
    stream = reader(client, subscribe=topic, maxOffsetsPerTrigger="10")
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    logged = json.loads(json.dumps([start, end]))
    fill(client, topic, 30, start=30)

    again = reader(client, subscribe=topic, maxOffsetsPerTrigger="10")

    assert read(again, *logged) == read(stream, start, end)


def test_committed_offsets_follow_the_finished_batches(client: Client, topic: str) -> None:
    """Lag tools show the progress, also after the last batch. Recovery does not use it."""
    group = f"g-{topic}"
    client.groups.put(group, {"topic": topic, "mode": "queue"})
    fill(client, topic, 10)
    stream = reader(client, subscribe=topic, group=group, commitOffsets="true")
    start = stream.initialOffset()

    end = stream.latestOffset(start, ALL)
    while_running = client.lag(group)["lag"]
    stream.latestOffset(end, ALL)

    assert while_running == 10
    assert client.lag(group)["lag"] == 0


def test_the_ends_of_the_queues_are_reported_for_lag(client: Client, topic: str) -> None:
    """The lag is the difference between the ends and the position, whatever the limit is."""
    fill(client, topic, 30)
    stream = reader(client, subscribe=topic, maxOffsetsPerTrigger="5")

    assert sum(stream.reportLatestOffset()[topic].values()) == 30


def test_readers_and_tasks_can_be_pickled(client: Client, topic: str) -> None:
    """Spark sends them to the workers, so they must not contain process state."""
    fill(client, topic, 3)
    stream = reader(client, subscribe=topic)
    start = stream.initialOffset()
    (task, *_) = stream.partitions(start, stream.latestOffset(start, ALL))

    far, sent = pickle.loads(pickle.dumps((stream, task)))  # noqa: S301 - what we pickled

    assert isinstance(sent, Task)
    assert [batch.num_rows for batch in far.read(sent)] == [batch.num_rows for batch in stream.read(task)]
