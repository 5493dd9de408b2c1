"""Messages once more, from the log or from the archive, under their own ids: into a topic, or for one group alone.

in the order of queue and offset, a request at a time, at most so many a second
each under an idempotency key made of the replay's name and its place: a request that is repeated stores nothing
after each request the place reached goes into a file: a replay that was interrupted goes on there
where the source ended at its first start stands there too: what came since, its own copies as well, is none of it
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
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for them

from mqgate.client.transport import path
from mqgate.core.message import milliseconds
from mqgate.spark.options import connection
from mqgate.spark.pipelines import archive
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.publisher import Publisher
from mqgate.spark.reads import open_log
from mqgate.spark.sink_options import parse_sink
from mqgate.spark.sink_rows import Row as Sent

__all__ = ["Replay", "chosen", "count", "replay", "unreplayed"]

_COLUMNS = ("id", "topic", "queue", "offset", "key", "tag", "properties", "body", "storedAt")
_A_REQUEST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What is to be replayed, and where to: a topic, or a group. `where` is an expression of Spark's SQL."""

    name: str
    source: str
    topic: str | None = None
    group: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    where: str | None = None
    is_archived: bool = False
    rate: float | None = None


def chosen(spark: SparkSession, config: PipelineConfig, wanted: Replay) -> DataFrame:
    """The messages of a replay."""
    if wanted.is_archived:
        first, last = wanted.since or datetime.fromtimestamp(0, UTC), wanted.until or datetime.now(UTC)
        paths = archive.hours(config.archive_path, [wanted.source], first, last)
        if not paths:
            raise FileNotFoundError(f"{config.archive_path} has nothing of {wanted.source} in that time")
        messages = spark.read.option("basePath", str(config.archive_path)).parquet(*paths)
    else:
        options = config.options(subscribe=wanted.source, failOnDataLoss="false")
        messages = spark.read.format("mqgate").options(**options).load()
    if wanted.since is not None:
        messages = messages.where(F.unix_millis("storedAt") >= milliseconds(wanted.since))
    if wanted.until is not None:
        messages = messages.where(F.unix_millis("storedAt") < milliseconds(wanted.until))
    return (messages.where(wanted.where) if wanted.where else messages).select(*_COLUMNS)


def count(messages: DataFrame) -> list[dict[str, Any]]:
    """What a replay would send, by queue: for a dry run."""
    found = messages.groupBy("topic", "queue").agg(
        F.count("*").alias("messages"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    return [row.asDict() for row in found.orderBy("topic", "queue").collect()]


def unreplayed(messages: DataFrame, done: dict[str, int]) -> DataFrame:
    """What is left behind the places reached, by queue."""
    for queue, offset in done.items():
        messages = messages.where((F.col("queue") != queue) | (F.col("offset") >= offset))
    return messages


def replay(spark: SparkSession, config: PipelineConfig, wanted: Replay) -> int:
    """Send what was not sent yet; how many messages."""
    progress = config.directory / "replays" / f"{wanted.name}.json"
    done, ends = _reached(progress, wanted)
    if ends is None:
        ends = _ends(spark, config, wanted)
        _store(progress, wanted, done, ends)
    if not ends:
        return 0
    left = unreplayed(_before(chosen(spark, config, wanted), ends), done).orderBy("queue", "offset")
    options = {name: value for name, value in config.options().items() if name in {"url", "key"}}
    options["topic"] = wanted.topic or wanted.source
    address = path("groups", wanted.group, "replay") if wanted.group else path("topics", options["topic"], "replay")
    publisher = Publisher(parse_sink(options, is_stream=False), address)
    publisher.check()
    sent, began = 0, time.monotonic()
    for some in _requests(left.toLocalIterator(), _size(wanted.rate)):
        if wanted.rate is not None:
            time.sleep(max(0.0, began + sent / wanted.rate - time.monotonic()))
        publisher.publish([_copy(message, wanted.name) for message in some])
        sent += len(some)
        done[some[-1].queue] = some[-1].offset + 1
        _store(progress, wanted, done, ends)
    return sent


def _ends(spark: SparkSession, config: PipelineConfig, wanted: Replay) -> dict[str, int]:
    """Where the source ends now, by queue."""
    if wanted.is_archived:
        return {row["queue"]: row["last"] + 1 for row in count(chosen(spark, config, wanted))}
    log = open_log(connection(config.options()))
    return {queue: ends.max for queue, ends in log.ends(wanted.source).items()}


def _before(messages: DataFrame, ends: dict[str, int]) -> DataFrame:
    """Messages before these places; none of a queue that has no place."""
    places = F.create_map(*(F.lit(each) for pair in ends.items() for each in pair))
    return messages.where(F.col("offset") < places[F.col("queue")])


def _requests(messages: Iterator[Row], size: int) -> Iterator[list[Row]]:
    """So many at a time, those of one queue: then the last one says how far it is."""
    some: list[Row] = []
    for message in messages:
        if some and (len(some) == size or some[-1].queue != message.queue):
            yield some
            some = []
        some.append(message)
    if some:
        yield some


def _size(rate: float | None) -> int:
    """Requests small enough that a low rate is even."""
    return _A_REQUEST if rate is None else max(1, min(_A_REQUEST, int(rate / 10)))


def _copy(message: Row, name: str) -> Sent:
    """A message as it was, and where it lay."""
    place = f"{message.topic} {message.queue} {message.offset}"
    told = {
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
    return Sent(message.offset, json.dumps(told).encode())


def _reached(progress: Path, wanted: Replay) -> tuple[dict[str, int], dict[str, int] | None]:
    """The places reached, and where it ends: None if it has not begun."""
    if not progress.exists():
        return {}, None
    told = json.loads(progress.read_text("utf-8"))
    if told["replay"] != _identity(wanted):
        raise ValueError(f"{progress} is of another replay ({told['replay']}): choose another --name")
    return dict(told["done"]), told.get("ends")


def _store(progress: Path, wanted: Replay, done: dict[str, int], ends: dict[str, int]) -> None:
    progress.parent.mkdir(parents=True, exist_ok=True)
    aside = progress.with_suffix(".new")
    with aside.open("w", encoding="utf-8") as file:
        json.dump({"replay": _identity(wanted), "done": done, "ends": ends}, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(progress)


def _identity(wanted: Replay) -> str:
    """What must not change between two runs of a replay; the rate may."""
    since, until = (None if each is None else each.isoformat() for each in (wanted.since, wanted.until))
    target = f"group {wanted.group}" if wanted.group else f"topic {wanted.topic}"
    return f"{wanted.source} to {target}, from {since} to {until}, where {wanted.where}"
