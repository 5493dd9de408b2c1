"""Replays messages from the log or the archive, with their original ids, to a topic or to one group.

- Messages are sent in the order of queue and offset, one request at a time, up to the configured rate.
- The idempotency key contains the name of the replay and the place of the message, so repeated requests store nothing.
- A progress file is updated after each request. An interrupted replay continues there.
- The file also contains the ends of the source at the first start. Later messages, such as the copies, are excluded.
"""

import base64
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from mqgate.client.requests import path
from mqgate.core.message import milliseconds
from mqgate.spark.options import connection
from mqgate.spark.pipelines import archive
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.publisher import Publisher
from mqgate.spark.reads import open_log
from mqgate.spark.sink_options import parse_sink
from mqgate.spark.sink_rows import Row as SinkRow

__all__ = ["Replay", "chosen", "count", "replay", "unreplayed"]

_COLUMNS = ("id", "topic", "queue", "offset", "key", "tag", "properties", "body", "storedAt")
_MAX_MESSAGES_PER_REQUEST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Source, filters and target (a topic or a group) of a replay. `where` is a Spark SQL expression."""

    name: str
    source: str
    topic: str | None = None
    group: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    where: str | None = None
    is_archived: bool = False
    rate: float | None = None


def chosen(spark: SparkSession, config: PipelineConfig, request: Replay) -> DataFrame:
    """Return the messages of a replay."""
    if request.is_archived:
        first, last = request.since or datetime.fromtimestamp(0, UTC), request.until or datetime.now(UTC)
        paths = archive.hour_paths(config.archive_path, [request.source], first, last)
        if not paths:
            raise FileNotFoundError(f"{config.archive_path} has no messages of {request.source} in that time")
        messages = spark.read.option("basePath", str(config.archive_path)).parquet(*paths)
    else:
        options = config.options(subscribe=request.source, failOnDataLoss="false")
        messages = spark.read.format("mqgate").options(**options).load()
    if request.since is not None:
        messages = messages.where(F.unix_millis("storedAt") >= milliseconds(request.since))
    if request.until is not None:
        messages = messages.where(F.unix_millis("storedAt") < milliseconds(request.until))
    return (messages.where(request.where) if request.where else messages).select(*_COLUMNS)


def count(messages: DataFrame) -> list[dict[str, Any]]:
    """Return the number of messages by queue, for a dry run."""
    found = messages.groupBy("topic", "queue").agg(
        F.count("*").alias("messages"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    return [row.asDict() for row in found.orderBy("topic", "queue").collect()]


def unreplayed(messages: DataFrame, done: dict[str, int]) -> DataFrame:
    """Return the messages that are not yet sent, given the next offset by queue."""
    for queue, offset in done.items():
        messages = messages.where((F.col("queue") != queue) | (F.col("offset") >= offset))
    return messages


def replay(spark: SparkSession, config: PipelineConfig, request: Replay) -> int:
    """Send the remaining messages. Return their number."""
    progress = config.directory / "replays" / f"{request.name}.json"
    done, ends = _load_progress(progress, request)
    if ends is None:
        ends = _ends(spark, config, request)
        _store_progress(progress, request, done, ends)
    if not ends:
        return 0
    remaining = unreplayed(_before(chosen(spark, config, request), ends), done).orderBy("queue", "offset")
    options = {name: value for name, value in config.options().items() if name in {"url", "key"}}
    options["topic"] = request.topic or request.source
    address = path("groups", request.group, "replay") if request.group else path("topics", options["topic"], "replay")
    publisher = Publisher(parse_sink(options, is_stream=False), address)
    publisher.check()
    sent, began = 0, time.monotonic()
    for batch in _requests(remaining.toLocalIterator(), _size(request.rate)):
        if request.rate is not None:
            time.sleep(max(0.0, began + sent / request.rate - time.monotonic()))
        publisher.publish([_copy(message, request.name) for message in batch])
        sent += len(batch)
        done[batch[-1].queue] = batch[-1].offset + 1
        _store_progress(progress, request, done, ends)
    return sent


def _ends(spark: SparkSession, config: PipelineConfig, request: Replay) -> dict[str, int]:
    """Return the end of the source by queue."""
    if request.is_archived:
        return {row["queue"]: row["last"] + 1 for row in count(chosen(spark, config, request))}
    log = open_log(connection(config.options()))
    return {queue: ends.max for queue, ends in log.ends(request.source).items()}


def _before(messages: DataFrame, ends: dict[str, int]) -> DataFrame:
    """Return the messages before these ends. Messages of other queues are excluded."""
    end_by_queue = F.create_map(*(F.lit(value) for item in ends.items() for value in item))
    return messages.where(F.col("offset") < end_by_queue[F.col("queue")])


def _requests(messages: Iterator[Row], size: int) -> Iterator[list[Row]]:
    """Yield batches of one queue with at most `size` messages, so that the last message is the progress."""
    batch: list[Row] = []
    for message in messages:
        if batch and (len(batch) == size or batch[-1].queue != message.queue):
            yield batch
            batch = []
        batch.append(message)
    if batch:
        yield batch


def _size(rate: float | None) -> int:
    """Return the size of a request, small enough for an even rate."""
    return _MAX_MESSAGES_PER_REQUEST if rate is None else max(1, min(_MAX_MESSAGES_PER_REQUEST, int(rate / 10)))


def _copy(message: Row, name: str) -> SinkRow:
    """Encode a message with its original place."""
    place = f"{message.topic} {message.queue} {message.offset}"
    envelope = {
        "id": message.id,
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "key": message.key,
        "tag": message.tag,
        "properties": message.properties or None,
        "bodyBase64": base64.b64encode(message.body).decode(),
        "storedAt": milliseconds(message.storedAt.astimezone(UTC)),
        "idempotencyKey": f"replay {name} {place}",
    }
    return SinkRow(message.offset, json.dumps(envelope).encode())


def _load_progress(progress: Path, request: Replay) -> tuple[dict[str, int], dict[str, int] | None]:
    """Return the next offsets and the ends of the source; None for the ends if the replay has not started."""
    if not progress.exists():
        return {}, None
    state = json.loads(progress.read_text("utf-8"))
    if state["replay"] != _identity(request):
        raise ValueError(f"{progress} belongs to another replay ({state['replay']}): choose another --name")
    return dict(state["done"]), state.get("ends")


def _store_progress(progress: Path, request: Replay, done: dict[str, int], ends: dict[str, int]) -> None:
    progress.parent.mkdir(parents=True, exist_ok=True)
    temporary = progress.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"replay": _identity(request), "done": done, "ends": ends}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(progress)


def _identity(request: Replay) -> str:
    """Return the parameters that must not change between two runs of a replay. The rate may change."""
    since, until = (None if instant is None else instant.isoformat() for instant in (request.since, request.until))
    target = f"group {request.group}" if request.group else f"topic {request.topic}"
    return f"{request.source} to {target}, from {since} to {until}, where {request.where}"
