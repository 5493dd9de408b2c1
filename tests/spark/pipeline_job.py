"""A driver of its own, to be killed: counts the events of a topic and archives them, then ends.

`python pipeline_job.py URL TOPIC DIRECTORY MOST_A_BATCH`
"""

import sys
from datetime import timedelta
from pathlib import Path

from mqgate.spark.pipelines.plan import Plan, start
from mqgate.spark.pipelines.queries import start_archive, start_minutes
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore


def main(url: str, topic: str, directory: Path, most_a_batch: int) -> None:
    plan = Plan(
        url=url,
        directory=directory,
        events_topic=topic,
        trigger=timedelta(milliseconds=100),
        max_offsets=most_a_batch,
        max_messages=most_a_batch,
    )
    store = StatsStore(SqliteDatabase(directory / "stats.sqlite3", is_writing=True), is_writing=True)
    spark = start(
        plan,
        **{
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.warehouse.dir": directory / "warehouse",
        },
    )
    queries = [start_minutes(spark, plan, store), start_archive(spark, plan)]
    for query in queries:
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
