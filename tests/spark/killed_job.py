"""A driver of its own, to be killed: everything that must not do its work twice, at once.

`python killed_job.py URL TOPIC EVENTS DIRECTORY`

A topic goes to Parquet, to another topic, and by replay to a third; a topic of events is counted and archived. All of
it in steps so small that it is killed long before its end; what is left then, `do_all` does in large ones.
Running queries, also on a batch in which another driver was killed, are listed as files in DIRECTORY/begun.
"""

import json
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mqgate.spark.pipelines.config import PipelineConfig, own_session, start
from mqgate.spark.pipelines.queries import start_archive, start_minutes
from mqgate.spark.pipelines.replay import Replay, replay
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore

# What a driver costs is its start, and there nearly all is done once: nothing is worth compiling.
CONF = {
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, slots=True)
class Steps:
    """How much is done at a time: batches of events, messages, and messages replayed a second."""

    batches: int
    messages: int
    replayed: float


# A replay goes by the clock, whatever the rest does: at this pace it lasts for ten minutes, longer than all drivers.
SMALL, LARGE = Steps(2, 40, 10.0), Steps(400, 24_000, 24_000.0)


def main(url: str, topic: str, events: str, directory: Path) -> None:
    config = config_of(url, events, directory, SMALL)
    spark = start(config, **CONF, **{"spark.sql.warehouse.dir": directory / "warehouse"})
    try:
        do_all(spark, config, topic, SMALL)
    except Exception:  # noqa: BLE001 - a driver that failed is to make place for the next, whatever it failed with
        traceback.print_exc()
        # Not to wait for the replay.
        os._exit(1)
    spark.stop()


def config_of(url: str, events: str, directory: Path, steps: Steps) -> PipelineConfig:
    return PipelineConfig(
        url=url,
        directory=directory,
        events_topic=events,
        trigger=timedelta(milliseconds=1),
        max_offsets=steps.batches,
        max_messages=steps.batches,
    )


def do_all(spark: SparkSession, config: PipelineConfig, topic: str, steps: Steps) -> None:
    """Go on where the last one was killed, to the end."""
    store = StatsStore(SqliteDatabase(config.directory / "stats.sqlite3", is_writing=True), is_writing=True)
    # First: beside four queries that keep all cores busy it would begin half a minute later.
    again = Replay(name="again", source=topic, topic=f"{topic}-again", rate=steps.replayed)
    before = _progress(config.directory)
    # In a session like those of the queries: Python processes serve only those who know the source the same way.
    replaying = ThreadPoolExecutor(1).submit(replay, own_session(spark), config, again)
    while _progress(config.directory) == before and not replaying.done():
        time.sleep(0.05)
    _query(spark, config, store, topic, steps)
    replaying.result()


def _progress(directory: Path) -> dict[str, int]:
    found = directory / "replays" / "again.json"
    return dict(json.loads(found.read_text())["done"]) if found.exists() else {}


def _query(spark: SparkSession, config: PipelineConfig, store: StatsStore, topic: str, steps: Steps) -> None:
    queries = {"minutes": start_minutes(spark, config, store)}
    # It takes longest to come to its work, and meanwhile the others would do theirs for nothing.
    _tell_begun(spark, config, queries, steps)
    queries["archive"] = start_archive(spark, config)
    targets = {
        "parquet": {"path": str(config.directory / "parquet")},
        "mqgate": {"url": config.url, "topic": f"{topic}-copy"},
    }
    queries |= {kind: _copy(spark, config, topic, steps.messages, kind, options) for kind, options in targets.items()}
    _tell_begun(spark, config, queries, steps)
    for query in queries.values():
        query.processAllAvailable()
        query.stop()


def _tell_begun(spark: SparkSession, config: PipelineConfig, queries: dict[str, StreamingQuery], steps: Steps) -> None:
    """Which queries work on rows: a batch that is in the output already is passed over without a job of Spark.

    Raises what one of them failed with.
    """
    begun = config.directory / "begun"
    begun.mkdir(exist_ok=True)
    tracker = spark.sparkContext.statusTracker()
    waiting = dict(queries) if steps is SMALL else {}
    while waiting:
        for name, query in list(waiting.items()):
            if not query.isActive:
                query.awaitTermination()
            if tracker.getJobIdsForGroup(str(query.runId)):
                (begun / name).touch()
                del waiting[name]
        time.sleep(0.05)


def _copy(
    spark: SparkSession, config: PipelineConfig, topic: str, most: int, kind: str, options: dict[str, str]
) -> StreamingQuery:
    source = config.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(most))
    rows = own_session(spark).readStream.format("mqgate").options(**source).load()
    if kind == "mqgate":
        rows = rows.select("body", "key", "tag", "properties")
    checkpoint = str(config.checkpoint(kind))
    return rows.writeStream.format(kind).options(checkpointLocation=checkpoint, **options).start()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
