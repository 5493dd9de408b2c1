"""The pipelines alone: statistics from events, and reconciliation of a growing number of messages.

One local session. Spark generates the frames, so that only the work of the pipelines is measured; on_spark.py measures
reading the topic.
"""

import io
import os
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import processes
import pyarrow as pa
from processes import descendants, tree_cpu
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from mqgate.core.events import EVENTS
from mqgate.spark.pipelines.decode import MESSAGE, SCHEMA, decode_messages
from mqgate.spark.pipelines.live import figures
from mqgate.spark.pipelines.reconcile import GROUPS, OFFSETS, PRESENT, reconcile
from mqgate.spark.session import session

ROUNDS = 3
NOON_MS = 1_794_830_400_000
BATCHES, ROWS_A_BATCH = 400, 1_000
SIZES = (100_000, 300_000, 1_000_000)
_TYPES = {
    "text": pa.string(),
    "word": pa.dictionary(pa.int32(), pa.string()),
    "int": pa.int64(),
    "instant": pa.timestamp("ms", tz="UTC"),
}


def compare(table: Any) -> None:
    """Measure rows per second of the minute statistics, and the growth of a reconciliation."""
    spark = session("bench", "local[2]", **{"spark.sql.shuffle.partitions": 4, "spark.driver.memory": "2g"})
    _minutes(table, spark)
    _reconciliation(table, spark)
    spark.stop()


def _minutes(table: Any, spark: SparkSession) -> None:
    shown = table(
        "pipeline_minutes",
        f"Minute figures, {BATCHES * ROWS_A_BATCH:,} events in batches of {ROWS_A_BATCH:,}, local[2]",
        ("what", "events per second", "CPU us per event", "rows of the tables"),
    )
    body, properties = _body(), {"schema": EVENTS.schema, "gateway": "g", "incarnation": "i", "sent_at": str(NOON_MS)}
    messages = (
        spark.range(BATCHES, numPartitions=4)
        .select(
            F.lit("mqgate_events").alias("topic"),
            F.lit("local:0").alias("queue"),
            F.col("id").alias("offset"),
            F.to_json(
                F.struct(*(F.lit(value).alias(name) for name, value in properties.items()),
                         F.col("id").cast("string").alias("sequence"))
            ).alias("properties"),
            F.lit(body).alias("body"),
            F.timestamp_millis(F.lit(NOON_MS)).alias("storedAt"),
        )
        .persist()
    )  # fmt: skip
    assert messages.schema.fieldNames() == [part.split()[0] for part in MESSAGE.split(", ")]
    messages.count()
    ways: dict[str, Callable[[], int]] = {
        "decode only": lambda: _drained(decode_messages(messages)),
        "decode, aggregate, collect": lambda: _figures(messages),
    }
    for way in ways.values():
        way()
    for name, way in ways.items():
        rounds = [_measured(way) for _ in range(ROUNDS)]
        count = BATCHES * ROWS_A_BATCH
        seconds, cpu = (statistics.median(each[place] for each in rounds) for place in (0, 1))
        shown.add(name, count / seconds, cpu / count * 1e6, rounds[0][2])
    shown.write()
    messages.unpersist()


def _reconciliation(table: Any, spark: SparkSession) -> None:
    shown = table(
        "pipeline_reconciliation",
        "Reconciliation of one group, 8 queues, every message published, delivered and acked, local[2]",
        ("messages", "seconds", "us per message", "of the smallest's", "Spark MiB, most"),
    )
    _judged(spark, 10_000)
    base = 0.0
    for size in SIZES:
        rounds = [_measured(lambda size=size: _judged(spark, size)) for _ in range(ROUNDS)]
        seconds = statistics.median(each[0] for each in rounds)
        base = base or seconds / size
        shown.add(f"{size:,}", seconds, seconds / size * 1e6, seconds / size / base, max(each[3] for each in rounds))
    shown.write()


def _judged(spark: SparkSession, size: int) -> int:
    each = size // 8
    queue = F.concat(F.lit("local:"), (F.col("id") % 8).cast("string"))
    place = (F.lit("orders").alias("topic"), queue.alias("queue"), F.floor(F.col("id") / 8).alias("offset"))
    numbers = spark.range(each * 8, numPartitions=4)
    present = numbers.select(*place, F.concat(F.lit("id-"), F.col("id").cast("string")).alias("id"))
    events = numbers.crossJoin(spark.createDataFrame([("published",), ("delivered",), ("acked",)], "kind STRING"))
    told = {"topic", "queue", "offset"}
    made: dict[str, Any] = {"table": F.lit("events"), "kind": F.col("kind"), "group": F.lit("billing"),
                            "outcome": F.lit("applied")}  # fmt: skip
    nulls = [
        F.lit(None).cast(_sql(field.type)).alias(field.name) for field in SCHEMA if field.name not in told | made.keys()
    ]
    events = events.select(*place, *(column.alias(name) for name, column in made.items()), *nulls)
    queues = [("orders", f"local:{number}") for number in range(8)]
    judged = reconcile(
        spark.createDataFrame([(*queue, 0, each) for queue in queues], OFFSETS),
        spark.createDataFrame([("orders", "billing", "", queue, 0, each, 0) for _, queue in queues], GROUPS),
        events,
        present.select(*[part.split()[0] for part in PRESENT.split(", ")]),
        has_gaps=False,
    )
    (row,) = judged.summary.collect()
    assert row.acked == row.published == each * 8
    assert judged.findings.count() == 0
    judged.release()
    return size


def _figures(messages: DataFrame) -> int:
    rows = decode_messages(messages).persist()
    found = figures(rows, timedelta(days=7))
    rows.unpersist()
    return sum(len(each) for each in found.values())


def _drained(frame: DataFrame) -> int:
    frame.write.format("noop").mode("overwrite").save()
    return 0


def _measured(work: Callable[[], int]) -> tuple[float, float, int, float]:
    """Return seconds, CPU seconds of Spark, the result of the work, and the peak memory of all processes in MiB."""
    memory, done = [0.0], threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            # Workers may end at any time.
            with suppress(OSError):
                memory.append(sum(processes.memory_bytes(pid) for pid in descendants(os.getpid(), 0)) / 2**20)

    watcher = threading.Thread(target=look)
    watcher.start()
    cpu, began = tree_cpu(os.getpid()), time.perf_counter()
    answer = work()
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    return seconds, tree_cpu(os.getpid()) - cpu, answer, max(memory)


def _body() -> bytes:
    """Return acks of ten clients over three minutes."""
    values: dict[str, list[Any]] = {name: [None] * ROWS_A_BATCH for name, _ in EVENTS.columns}
    for number in range(ROWS_A_BATCH):
        row = {
            "at": NOON_MS - number % 3 * 60_000,
            "kind": ("published", "delivered", "acked")[number % 3],
            "topic": f"topic-{number % 5}",
            "queue": "local:0",
            "offset": number,
            "group": f"group-{number % 5}",
            "client": f"client-{number % 10}",
            "stored_at": NOON_MS - 180_000 - number,
            "granted_at": NOON_MS - 180_000,
            "delivery": 1,
            "bytes": 256,
        }
        for name, value in row.items():
            values[name][number] = value
    found = pa.table({name: pa.array(values[name], _TYPES[kind]) for name, kind in EVENTS.columns})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    return sink.getvalue()


def _sql(kind: pa.DataType) -> str:
    names = {pa.string(): "string", pa.int64(): "bigint", pa.bool_(): "boolean"}
    return names.get(kind, "timestamp")
