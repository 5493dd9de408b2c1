"""The live queries and their start positions: a checkpoint or, if it was lost, the end of their output."""

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
    """The output exists without its checkpoint. A start from the beginning would count everything again."""

    def __init__(self, pipeline: str, checkpoint: Path) -> None:
        super().__init__(
            f"the checkpoint {checkpoint} is missing, but the output of {pipeline} exists: restore the checkpoint, or "
            f"run with --renew {pipeline} to create a new one where the output ends"
        )


class OutputLost(RuntimeError):
    """The checkpoint exists without its output. Continuing would omit all earlier messages."""

    def __init__(self, pipeline: str, checkpoint: Path) -> None:
        super().__init__(
            f"the output of {pipeline} is missing, but its checkpoint {checkpoint} exists: restore the output, or move "
            "the checkpoint away to start with the messages that the topic still contains"
        )


def start_minutes(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, *, is_renewed: bool = False
) -> StreamingQuery:
    """Start the query that counts events."""
    stored: dict[str, dict[str, int]] = {}
    for topic, queue, offset in store.read("positions", live.PIPELINE):
        stored.setdefault(topic, {})[queue] = offset
    output = {topic: queues for topic, queues in stored.items() if topic == config.events_topic}
    options = {"maxOffsetsPerTrigger": str(config.max_offsets), "properties": "json", "subscribe": config.events_topic}
    frame = _stream(spark, config, live.PIPELINE, output, options, MESSAGE, is_renewed=is_renewed)
    return _start(
        frame, config, live.PIPELINE, live.batch_counter(store, config.minutes), config.trigger.total_seconds()
    )


def start_archive(spark: SparkSession, config: PipelineConfig, *, is_renewed: bool = False) -> StreamingQuery:
    """Start the query that archives the events and the configured topics."""
    topics = (config.events_topic, *config.archive)
    archive.remove_incomplete(config.archive_path)
    output = archive.next_offsets(config.archive_path)
    options = {"maxOffsetsPerTrigger": str(config.max_messages), "subscribe": ",".join(topics)}
    frame = _stream(spark, config, archive.PIPELINE, output, options, None, is_renewed=is_renewed)
    # A longer trigger writes fewer and larger files.
    seconds = 6 * config.trigger.total_seconds()
    return _start(frame, config, archive.PIPELINE, archive.batch_archiver(config.archive_path), seconds)


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
    has_commits = any((checkpoint / "commits").glob("[0-9]*"))
    starting = "earliest"
    if output and not (checkpoint / "metadata").exists():
        if not is_renewed:
            raise CheckpointLost(pipeline, checkpoint)
        starting = json.dumps(_start_offsets(config, options["subscribe"].split(","), output))
    elif has_commits and not output and _has_rows(checkpoint):
        raise OutputLost(pipeline, checkpoint)
    source_options = config.options(startingOffsets=starting, failOnDataLoss="false", **options)
    reader = own_session(spark).readStream.format("mqgate").options(**source_options)
    return (reader.schema(schema) if schema else reader).load()


def _start(
    frame: DataFrame, config: PipelineConfig, pipeline: str, process_batch: object, seconds: float
) -> StreamingQuery:
    return (
        frame.writeStream.queryName(pipeline)
        .foreachBatch(process_batch)  # type: ignore[arg-type]  # Callable[[DataFrame, int], None]
        .option("checkpointLocation", str(config.checkpoint(pipeline)))
        .trigger(processingTime=f"{max(round(seconds * 1000), 1)} milliseconds")
        .start()
    )


def _start_offsets(config: PipelineConfig, topics: list[str], output: Positions) -> dict[str, dict[str, int]]:
    """Return the start offset of each queue. A queue without output starts at its beginning."""
    with config.connect() as client:
        return {
            topic: {
                queue["queue"]: output.get(topic, {}).get(queue["queue"], _EARLIEST)
                for queue in client.queues(topic, times=False)
            }
            for topic in topics
        }


def _has_rows(checkpoint: Path) -> bool:
    """Return whether the query ever read a message. A query over an empty topic has no output to lose."""
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
