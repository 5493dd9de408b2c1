"""A driver of its own, to be killed: everything that must not do its work twice, at once.

`python killed_job.py URL TOPIC EVENTS DIRECTORY`

A topic goes to Parquet, to another topic, and by replay to a third; a topic of events is counted and archived. All of
it in steps so small that it is killed long before its end; what is left then, `do_all` does in large ones.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from kills import planned
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mqgate.spark.pipelines.plan import Plan, own_session, start
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


# A replay goes by the clock, whatever the rest does: at this pace it lasts for twelve minutes, longer than all drivers.
SMALL, LARGE = Steps(2, 120, 20.0), Steps(400, 24_000, 24_000.0)


def main(url: str, topic: str, events: str, directory: Path) -> None:
    plan = plan_of(url, events, directory, SMALL)
    spark = start(plan, **CONF, **{"spark.sql.warehouse.dir": directory / "warehouse"})
    do_all(spark, plan, topic, SMALL)
    spark.stop()


def plan_of(url: str, events: str, directory: Path, steps: Steps) -> Plan:
    return Plan(
        url=url,
        directory=directory,
        events_topic=events,
        trigger=timedelta(milliseconds=1),
        max_offsets=steps.batches,
        max_messages=steps.batches,
    )


def do_all(spark: SparkSession, plan: Plan, topic: str, steps: Steps) -> None:
    """Go on where the last one was killed, to the end."""
    store = StatsStore(SqliteDatabase(plan.directory / "stats.sqlite3", is_writing=True), is_writing=True)
    # First: beside four queries that keep all cores busy it would begin half a minute later.
    again = Replay(name="again", source=topic, topic=f"{topic}-again", rate=steps.replayed)
    with ThreadPoolExecutor(1) as aside:
        before = _progress(plan.directory)
        replaying = aside.submit(replay, spark, plan, again)
        while _progress(plan.directory) == before and not replaying.done():
            time.sleep(0.05)
        _query(spark, plan, store, topic, steps)
        replaying.result()


def _progress(directory: Path) -> str:
    found = directory / "replays" / "again.json"
    return found.read_text() if found.exists() else ""


def _query(spark: SparkSession, plan: Plan, store: StatsStore, topic: str, steps: Steps) -> None:
    before = planned(plan.checkpoint("minutes"))
    minutes = start_minutes(spark, plan, store)
    # It takes as long to come to a new batch as the others for twenty, and they would be done for nothing.
    while steps is SMALL and minutes.isActive and planned(plan.checkpoint("minutes")) == before:
        time.sleep(0.05)
    queries = [
        minutes,
        start_archive(spark, plan),
        _copy(spark, plan, topic, steps.messages, "parquet", {"path": str(plan.directory / "parquet")}),
        _copy(spark, plan, topic, steps.messages, "mqgate", {"url": plan.url, "topic": f"{topic}-copy"}),
    ]
    for query in queries:
        query.processAllAvailable()
        query.stop()


def _copy(spark: SparkSession, plan: Plan, topic: str, most: int, kind: str, options: dict[str, str]) -> StreamingQuery:
    source = plan.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(most))
    rows = own_session(spark).readStream.format("mqgate").options(**source).load()
    if kind == "mqgate":
        rows = rows.select("body", "key", "tag", "properties")
    checkpoint = str(plan.checkpoint(kind))
    return rows.writeStream.format(kind).options(checkpointLocation=checkpoint, **options).start()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
