"""The live queries, and what they begin with: a checkpoint, or what the outputs say where there is none any more."""

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mqgate.spark.pipelines import archive, live
from mqgate.spark.pipelines.config import PipelineConfig, own_session
from mqgate.spark.pipelines.decode import MESSAGE
from mqgate.stats.store import StatsStore

__all__ = ["CheckpointLost", "OutputLost", "start_archive", "start_minutes"]

_EARLIEST = -2
Positions = Mapping[str, Mapping[str, int]]


class CheckpointLost(RuntimeError):
    """The output is there, the checkpoint is not: to begin from the beginning would count everything again."""

    def __init__(self, pipeline: str, checkpoint: Path) -> None:
        super().__init__(
            f"the checkpoint {checkpoint} is gone, but what {pipeline} wrote is there: put it back, or run with "
            f"--renew {pipeline} to begin a new one where the output ends"
        )


class OutputLost(RuntimeError):
    """The checkpoint is there, the output is not: to go on would leave out everything before."""

    def __init__(self, pipeline: str, checkpoint: Path) -> None:
        super().__init__(
            f"what {pipeline} wrote is gone, but its checkpoint {checkpoint} goes on behind it: put the output back, "
            "or move the checkpoint away to begin again with what the topic still holds"
        )


def start_minutes(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, *, is_renewed: bool = False
) -> StreamingQuery:
    """Count events as they come."""
    told: dict[str, dict[str, int]] = {}
    for topic, queue, offset in store.read("positions", live.PIPELINE):
        told.setdefault(topic, {})[queue] = offset
    here = {topic: queues for topic, queues in told.items() if topic == config.events_topic}
    options = {"maxOffsetsPerTrigger": str(config.max_offsets), "properties": "json", "subscribe": config.events_topic}
    frame = _stream(spark, config, live.PIPELINE, here, options, MESSAGE, is_renewed=is_renewed)
    return _started(frame, config, live.PIPELINE, live.count(store, config.minutes), config.trigger.total_seconds())


def start_archive(spark: SparkSession, config: PipelineConfig, *, is_renewed: bool = False) -> StreamingQuery:
    """Archive the events, and the topics that are asked for."""
    topics = (config.events_topic, *config.archive)
    archive.clear(config.archive_path)
    here = archive.positions(config.archive_path)
    options = {"maxOffsetsPerTrigger": str(config.max_messages), "subscribe": ",".join(topics)}
    frame = _stream(spark, config, archive.PIPELINE, here, options, None, is_renewed=is_renewed)
    # Fewer, larger files: nobody waits for them.
    seconds = 6 * config.trigger.total_seconds()
    return _started(frame, config, archive.PIPELINE, archive.archived(config.archive_path), seconds)


def _stream(
    spark: SparkSession,
    config: PipelineConfig,
    pipeline: str,
    output: Positions,
    options: Mapping[str, str],
    schema: str | None,
    *,
    is_renewed: bool,
) -> DataFrame:
    checkpoint = config.checkpoint(pipeline)
    has_begun = any((checkpoint / "commits").glob("[0-9]*"))
    starting = "earliest"
    if output and not (checkpoint / "metadata").exists():
        if not is_renewed:
            raise CheckpointLost(pipeline, checkpoint)
        starting = json.dumps(_everywhere(config, options["subscribe"].split(","), output))
    elif has_begun and not output and _has_rows(checkpoint):
        raise OutputLost(pipeline, checkpoint)
    both = config.options(startingOffsets=starting, failOnDataLoss="false", **options)
    reader = own_session(spark).readStream.format("mqgate").options(**both)
    return (reader.schema(schema) if schema else reader).load()


def _started(frame: DataFrame, config: PipelineConfig, pipeline: str, take: object, seconds: float) -> StreamingQuery:
    return (
        frame.writeStream.queryName(pipeline)
        .foreachBatch(take)  # type: ignore[arg-type]  # a function of a frame and a number
        .option("checkpointLocation", str(config.checkpoint(pipeline)))
        .trigger(processingTime=f"{max(round(seconds * 1000), 1)} milliseconds")
        .start()
    )


def _everywhere(config: PipelineConfig, topics: list[str], output: Positions) -> dict[str, dict[str, int]]:
    """Where each queue goes on; one that the output has nothing of begins at its beginning."""
    with config.connect() as client:
        return {
            topic: {
                queue["queue"]: output.get(topic, {}).get(queue["queue"], _EARLIEST)
                for queue in client.queues(topic, times=False)
            }
            for topic in topics
        }


def _has_rows(checkpoint: Path) -> bool:
    """Whether any queue was ever read beyond its beginning: a query over an empty topic has no output to lose."""
    newest = max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=None)
    if newest is None:
        return False
    lines = (checkpoint / "offsets" / str(newest)).read_text("utf-8").splitlines()
    return any(
        isinstance(offset, int) and offset > 0
        for line in lines[2:]
        if line.startswith("{")
        for queues in json.loads(line).values()
        for offset in queues.values()
    )
