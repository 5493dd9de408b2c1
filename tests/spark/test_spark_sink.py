"""Writes to topics: rows are published once, also when Spark repeats them."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType
from sink_calls import stored

from mqgate.client import Client
from mqgate.spark.writer import batch_writer
from mqgate.testing.server_process import ServerProcess

Append = Callable[..., None]


@pytest.fixture
def append(gateway: ServerProcess, topic: str) -> Append:
    def append(frame: DataFrame, **options: Any) -> None:
        named = {"url": gateway.url, "topic": topic, **options}
        frame.write.format("mqgate").mode("append").options(**named).save()

    return append


class Lines:
    """A streaming query from a directory of files to a topic, one batch per file."""

    def __init__(self, spark: SparkSession, directory: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._directory = directory
        self.options = options
        self.checkpoint = directory / "checkpoint"
        (directory / "lines").mkdir()

    def add(self, name: str, count: int, body: str | None = None) -> None:
        text = "".join(f"{body or name} {number % 7}\n" for number in range(count))
        (self._directory / "lines" / name).write_text(text, "utf-8")

    def run(self) -> None:
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._directory / "lines"))
        query = (
            lines.selectExpr("value AS body", "split(value, ' ')[1] AS key")
            .writeStream.format("mqgate")
            .options(**self.options, checkpointLocation=str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


@pytest.fixture
def lines(spark: SparkSession, gateway: ServerProcess, topic: str, tmp_path: Path) -> Lines:
    return Lines(spark, tmp_path, {"url": gateway.url, "topic": topic})


def test_a_row_is_a_message(spark: SparkSession, append: Append, client: Client, topic: str) -> None:
    """Every column is stored unchanged, including binary bodies and nulls."""
    frame = spark.createDataFrame(
        [(bytearray(b"\xff\x00"), "k", "t", {"a": "1", "ü": "ß"}), (bytearray(b"plain"), None, None, None)],
        "body BINARY, key STRING, tag STRING, properties MAP<STRING,STRING>",
    )

    append(frame)

    found = {message["body"]: message for message in stored(client, topic)}
    full, bare = found[b"\xff\x00"], found[b"plain"]
    assert (full["key"], full["tag"], full["properties"]) == ("k", "t", {"a": "1", "ü": "ß"})
    assert (bare["key"], bare["tag"], bare["properties"]) == (None, None, {})


def test_rows_that_were_read_can_be_written(
    spark: SparkSession, append: Append, gateway: ServerProcess, client: Client, topic: str
) -> None:
    """Source and sink use the same columns, with both formats of properties."""
    client.publish(topic, "message", key="k", tag="t", properties={"a": "1"})
    copy = f"copy-{uuid4().hex}"
    client.topics.put(copy, {"queues": 1})

    for form in ("map", "json"):
        read = spark.read.format("mqgate").options(url=gateway.url, subscribe=topic, properties=form).load()
        append(read.select("body", "key", "tag", "properties"), topic=copy)

    found = [
        (message["body"], message["key"], message["tag"], message["properties"]) for message in stored(client, copy)
    ]
    assert found == [(b"message", "k", "t", {"a": "1"})] * 2


def test_rows_with_a_delivery_time_are_scheduled(
    spark: SparkSession, append: Append, client: Client, topic: str
) -> None:
    """The time zone of the session does not matter. Null and the past mean now."""
    due = datetime(2027, 3, 1, 12, 30, 15, 250_000, UTC)
    rows = [("later", due), ("past", due - timedelta(days=3650)), ("now", None)]

    append(spark.createDataFrame(rows, "body STRING, deliverAt TIMESTAMP"))

    (waiting,) = client.scheduled.list(topic=topic)["items"]
    assert waiting["deliverAt"] == "2027-03-01T12:30:15.250Z"
    assert {message["body"] for message in stored(client, topic)} == {b"past", b"now"}


def test_rows_of_a_key_keep_their_order(spark: SparkSession, append: Append, client: Client, topic: str) -> None:
    """This holds within a partition, across several requests."""
    frame = spark.range(0, 1_000, 1, 1).selectExpr("string(id) AS body", "string(id % 3) AS key")

    append(frame, batchSize=64)

    for key in ("0", "1", "2"):
        numbers = [int(message["body"]) for message in stored(client, topic) if message["key"] == key]
        assert numbers == list(range(int(key), 1_000, 3))


def test_a_named_write_can_be_repeated(spark: SparkSession, append: Append, client: Client, topic: str) -> None:
    """A job that runs again after a failure adds only the missing rows."""
    frame = spark.range(0, 500, 1, 3).selectExpr("string(id % 50) AS body")

    append(frame.limit(0), writeId="nightly")
    append(frame, writeId="nightly")
    append(frame, writeId="nightly")
    once = len(stored(client, topic))
    append(frame)

    assert once == 500
    assert len(stored(client, topic)) == 1_000


def test_a_stream_is_written_batch_by_batch(lines: Lines, client: Client, topic: str) -> None:
    """Equal rows of two batches are two messages. Only a repeated batch adds none."""
    lines.add("one", 20)
    lines.run()
    lines.add("two", 20)
    lines.add("three", 20, body="two")
    lines.run()

    found = Counter(message["body"].decode().split()[0] for message in stored(client, topic))
    assert found == {"one": 20, "two": 40}


def test_a_repeated_batch_adds_nothing(lines: Lines, client: Client, topic: str) -> None:
    """A driver that crashes before the commit repeats the batch."""
    lines.add("one", 20)
    lines.add("two", 20)
    lines.run()
    before = sorted(message["id"] for message in stored(client, topic))
    commits = lines.checkpoint / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink()

    lines.run()

    assert (commits / "1").exists()
    assert len(before) == 40
    assert sorted(message["id"] for message in stored(client, topic)) == before


def test_a_retried_task_adds_only_the_missing_rows(
    spark: SparkSession, gateway: ServerProcess, client: Client, topic: str
) -> None:
    """The first attempt stored some messages, and the second may get the rows in another order."""
    options = {"url": gateway.url, "topic": topic, "batchSize": "10"}
    writer = batch_writer(options, StructType([StructField("body", StringType())]), overwrite=False)

    def attempts(_rows: Iterator[int]) -> Iterator[tuple[int, int]]:
        bodies = [str(number % 40) for number in range(100)]

        def dies() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"body": bodies[:55]})
            raise MemoryError

        with contextlib.suppress(MemoryError):
            writer.write(dies())
        counts = writer.write(iter([pa.record_batch({"body": bodies[::-1]})])).counts
        yield counts.stored, counts.duplicates

    done = spark.sparkContext.parallelize(range(2), 2).mapPartitions(attempts).collect()

    assert done == [(50, 50)] * 2
    found = Counter(int(message["body"]) for message in stored(client, topic))
    assert found == Counter(number % 40 for number in [*range(100)] * 2)


def test_the_rate_of_a_producer_is_respected(spark: SparkSession, append: Append, client: Client, topic: str) -> None:
    """Tasks slow down to the rate, and every row is stored."""
    producer = f"producer-{uuid4().hex}"
    client.producers.put(producer, {"topic": topic, "rateLimit": {"rate": 200, "burst": 100}})

    append(spark.range(0, 400, 1, 2).selectExpr("string(id) AS body"), producer=producer)

    assert sorted(int(message["body"]) for message in stored(client, topic)) == list(range(400))


def test_a_rejected_row_fails_the_write(spark: SparkSession, append: Append) -> None:
    """The error names the row and the reason."""
    frame = spark.range(0, 10, 1, 1).selectExpr("if(id = 7, '', string(id)) AS body")

    with pytest.raises(PySparkException, match=r"row 7 of its partition, column body: .*empty.*\(empty_body\)"):
        append(frame)


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        ("body", {"topik": "x"}, "option topik is unknown: did you mean topic"),
        ("body", {"topic": "nowhere"}, r"option topic: .*nowhere"),
        ("body", {"url": "http://127.0.0.1:9", "retryTimeout": "100ms"}, r"option url: .*127\.0\.0\.1:9"),
        ("text", {}, "column text cannot be written to a topic"),
        ("value", {}, "column value cannot be written to a topic"),
    ],
)
def test_invalid_input_is_reported_before_any_task_runs(
    spark: SparkSession, append: Append, body: str, options: dict[str, str], expected: str
) -> None:
    """The driver names the option or the column."""
    group = uuid4().hex
    spark.sparkContext.setJobGroup(group, "to be refused")
    frame = spark.range(10).selectExpr(f"string(id) AS {body}")

    with pytest.raises(PySparkException, match=expected):
        append(frame, **options)

    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == []


def test_overwrite_is_rejected(spark: SparkSession, gateway: ServerProcess, client: Client, topic: str) -> None:
    """Messages that other groups have not read must not be deleted."""
    client.publish(topic, "kept")
    frame = spark.createDataFrame([("new",)], "body STRING")

    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        frame.write.format("mqgate").mode("overwrite").options(url=gateway.url, topic=topic).save()

    assert [message["body"] for message in stored(client, topic)] == [b"kept"]


def test_a_key_is_not_shown(spark: SparkSession, lines: Lines) -> None:
    """Errors of a failed query are printed in logs."""
    secret = uuid4().hex
    lines.options |= {"key": secret, "topic": "nowhere"}
    lines.add("one", 1)

    with pytest.raises(PySparkException, match="nowhere") as refused:
        lines.run()

    assert secret not in str(refused.value)
