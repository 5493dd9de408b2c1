"""The Spark source and sink, compared with the best and the usual performance of Python sources.

One session on this machine, rounds interleaved. The limit is a source that yields the same Arrow batch again and
again, so that only Spark's own part remains; the usual way is a source that yields tuples.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes
from prebuilt_source import Prebuilt, Tuples
from pyspark.sql import DataFrame, SparkSession

from mqgate.client import Client
from mqgate.spark.session import session

ROUNDS = 3
ROWS = 400_000
SINK_ROWS = 60_000
BODY = b"x" * 256
_PROPERTIES = {"region": "eu-west", "source": "shop", "version": "12"}


def compare(table: Any) -> None:
    """Measure rows per second of every way to read, and of the sink."""
    gateway = processes.gateway()
    spark = session("bench", "local[2]", **{"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "2g"})
    # The workers find shipped code in the same way.
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("prebuilt_source.py")))
    for source in (Prebuilt, Tuples):
        spark.dataSource.register(source)
    client = Client(gateway.url)
    _fill(client)
    whole = table(
        "spark_source",
        f"Spark source, {ROWS:,} messages of 256 bytes with three properties, 4 queues, local[2]",
        ("what", "rows per second", "of the Arrow limit", "CPU us per row, Spark", "... gateway", "gateway MiB, most"),
    )
    ways = _ways(spark, gateway)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for frame in ways.values():
        _drain(frame)
    for _ in range(ROUNDS):
        for name, frame in ways.items():
            found[name].append(_measured(lambda frame=frame: _drain(frame), ROWS, gateway.pid))
    limits = {
        "": _median(found["prebuilt Arrow"], "rate"),
        "three columns": _median(found["prebuilt Arrow, three columns"], "rate"),
    }
    for name, rounds in found.items():
        limit = limits["three columns" if name.endswith("three columns") else ""]
        rate = _median(rounds, "rate")
        whole.add(
            name, rate, rate / limit, _median(rounds, "spark"), _median(rounds, "gateway"), _median(rounds, "memory")
        )
    whole.write()
    _sink(table, spark, gateway, client)
    spark.stop()
    gateway.stop()


def _fill(client: Client) -> None:
    client.topics.put("bench", {"queues": 4})
    for at in range(0, ROWS, 1000):
        envelopes = [
            {"body": BODY.decode(), "key": f"key-{number}", "tag": "bench", "properties": _PROPERTIES}
            for number in range(at, at + 1000)
        ]
        client.publish_batch("bench", envelopes)


def _ways(spark: SparkSession, gateway: processes.Server) -> dict[str, DataFrame]:
    few = "id STRING, offset BIGINT, body BINARY"

    def of(name: str, schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format(name).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    ours = {"url": gateway.url, "subscribe": "bench"}
    return {
        "prebuilt Arrow": of("prebuilt", rows=ROWS),
        "tuples": of("tuples", rows=ROWS),
        "mqgate, http": of("mqgate", **ours),
        "mqgate, http, properties as JSON": of("mqgate", properties="json", **ours),
        "prebuilt Arrow, three columns": of("prebuilt", few, rows=ROWS),
        "mqgate, http, three columns": of("mqgate", few, **ours),
    }


def _sink(table: Any, spark: SparkSession, gateway: processes.Server, client: Client) -> None:
    sink = table(
        "spark_sink",
        f"Spark sink, {SINK_ROWS:,} rows of 256 bytes, 4 queues, fsync on, local[2]",
        ("what", "rows per second", "CPU us per row, Spark", "... gateway"),
    )
    client.topics.put("target", {"queues": 4})
    rows = (
        spark.range(SINK_ROWS, numPartitions=4).selectExpr("concat('k', id) AS key", "repeat('x', 256) AS body").cache()
    )
    rows.count()

    def write() -> None:
        rows.write.format("mqgate").options(url=gateway.url, topic="target").mode("append").save()

    write()
    rounds = [_measured(write, SINK_ROWS, gateway.pid) for _ in range(ROUNDS)]
    sink.add("mqgate, http", _median(rounds, "rate"), _median(rounds, "spark"), _median(rounds, "gateway"))
    sink.write()


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _measured(work: Callable[[], None], rows: int, gateway: int) -> dict[str, float]:
    memory, done = [processes.memory_bytes(gateway)], threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            memory.append(processes.memory_bytes(gateway))

    watcher = threading.Thread(target=look)
    watcher.start()
    spark_cpu, gateway_cpu = processes.tree_cpu(os.getpid(), gateway), processes.cpu_seconds(gateway)
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    return {
        "rate": rows / seconds,
        "spark": (processes.tree_cpu(os.getpid(), gateway) - spark_cpu) / rows * 1e6,
        "gateway": (processes.cpu_seconds(gateway) - gateway_cpu) / rows * 1e6,
        "memory": max(memory) / 2**20,
    }


def _median(rounds: list[dict[str, float]], name: str) -> float:
    return sorted(each[name] for each in rounds)[len(rounds) // 2]
