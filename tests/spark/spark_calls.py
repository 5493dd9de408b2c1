"""Helpers for tests of the source."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mqgate.client import Client

__all__ = ["bodies", "drained", "fill", "frame", "retained", "stream", "until"]

_PATIENCE = 30.0


def fill(client: Client, topic: str, count: int, *, start: int = 0, **metadata: Any) -> list[str]:
    """Publish numbered bodies, distributed over the queues by key. Return their ids."""
    envelopes = [{"body": str(number), "key": f"k{number}", **metadata} for number in range(start, start + count)]
    pages = [envelopes[at : at + 1000] for at in range(0, count, 1000)]
    return [result["id"] for page in pages for result in client.publish_batch(topic, page)]


def frame(spark: SparkSession, client: Client, schema: str | None = None, **options: Any) -> DataFrame:
    """Return a batch read."""
    reader = spark.read.format("mqgate").options(url=client.url, **options)
    return (reader.schema(schema) if schema else reader).load()


def stream(spark: SparkSession, client: Client, schema: str | None = None, **options: Any) -> DataFrame:
    """Return a streaming read, by default from the beginning."""
    both = {"url": client.url, "startingOffsets": "earliest", **options}
    reader = spark.readStream.format("mqgate").options(**both)
    return (reader.schema(schema) if schema else reader).load()


def drained(rows: DataFrame, checkpoint: Path) -> list[list[str]]:
    """Run an AvailableNow query to its end. Return the bodies of each batch."""
    found: list[list[str]] = []

    def take(batch: DataFrame, _number: int) -> None:
        found.append([row.body if isinstance(row.body, str) else bytes(row.body).decode() for row in batch.collect()])

    query = (
        rows.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def bodies(batches: Iterable[Iterable[str]]) -> list[int]:
    """Return all bodies as sorted numbers."""
    return sorted(int(body) for batch in batches for body in batch)


def until(is_true: Callable[[], Any]) -> None:
    """Wait until a condition of the gateway holds."""
    deadline = time.monotonic() + _PATIENCE
    while not is_true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def retained(client: Client, topic: str) -> Mapping[str, int]:
    """Let retention delete all messages. Return the first retained offset of each queue."""
    ends = {queue["queue"]: queue["max"] for queue in client.queues(topic, times=False)}
    client.topics.put(topic, {"retention": "1s"})
    until(lambda: all(queue["min"] >= ends[queue["queue"]] for queue in client.queues(topic, times=False)))
    client.topics.put(topic, {"retention": "1d"})
    return ends
