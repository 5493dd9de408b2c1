"""A driver of its own, to be killed: everything that must not do its work twice, at once; then it ends.

`python killed_job.py URL TOPIC EVENTS DIRECTORY MOST_A_BATCH`

A topic goes to Parquet, to another topic, and by replay to a third; a topic of events is counted and archived.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mqgate.spark.pipelines.plan import Plan, own_session, start
from mqgate.spark.pipelines.queries import start_archive, start_minutes
from mqgate.spark.pipelines.replay import Replay, replay
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore

# Messages are many and small, batches of events are few.
MESSAGES_FOR_A_BATCH = 60


def main(url: str, topic: str, events: str, directory: Path, most_a_batch: int) -> None:
    plan = Plan(
        url=url,
        directory=directory,
        events_topic=events,
        trigger=timedelta(milliseconds=1),
        max_offsets=most_a_batch,
        max_messages=most_a_batch,
    )
    store = StatsStore(SqliteDatabase(directory / "stats.sqlite3", is_writing=True), is_writing=True)
    spark = start(plan, **{"spark.sql.warehouse.dir": directory / "warehouse"})
    most_messages = most_a_batch * MESSAGES_FOR_A_BATCH
    # First: beside four queries that keep all cores busy it would begin half a minute later.
    again = Replay(name="again", source=topic, topic=f"{topic}-again", rate=float(most_messages))
    with ThreadPoolExecutor(1) as aside:
        before = _progress(directory)
        replaying = aside.submit(replay, spark, plan, again)
        while _progress(directory) == before and not replaying.done():
            time.sleep(0.05)
        _query(spark, plan, store, topic, most_messages)
        replaying.result()
    spark.stop()


def _progress(directory: Path) -> str:
    found = directory / "replays" / "again.json"
    return found.read_text() if found.exists() else ""


def _query(spark: SparkSession, plan: Plan, store: StatsStore, topic: str, most_messages: int) -> None:
    queries = [
        start_minutes(spark, plan, store),
        start_archive(spark, plan),
        _copy(spark, plan, topic, most_messages, "parquet", {"path": str(plan.directory / "parquet")}),
        _copy(spark, plan, topic, most_messages, "mqgate", {"url": plan.url, "topic": f"{topic}-copy"}),
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
    main(*sys.argv[1:4], Path(sys.argv[4]), int(sys.argv[5]))
