"""A driver of its own, to be killed: copies a topic to Parquet and, beside it, to another topic, then ends.

`python copy_job.py URL TOPIC COPY DIRECTORY MOST_A_BATCH`
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mqgate.spark.session import session
from mqgate.spark.source import MqgateSource


def main(url: str, topic: str, copy: str, directory: Path, most_a_batch: int) -> None:
    spark = session(
        "copy",
        "local[2]",
        **{
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.warehouse.dir": directory / "warehouse",
        },
    )
    queries = [
        _rows(spark, url, topic, most_a_batch).writeStream.format("parquet").option("path", str(directory / "parquet")),
        _rows(spark, url, topic, most_a_batch)
        .select("body", "key", "tag", "properties")
        .writeStream.format("mqgate")
        .options(url=url, topic=copy),
    ]
    started = [
        query.option("checkpointLocation", str(directory / f"checkpoint-{number}")).trigger(availableNow=True).start()
        for number, query in enumerate(queries)
    ]
    for query in started:
        query.awaitTermination()
    spark.stop()


def _rows(spark: SparkSession, url: str, topic: str, most_a_batch: int) -> DataFrame:
    # Queries that run beside each other must not share a source: Spark 4.3 changes its Python function while it is
    # being sent to a task ("Illegal size of collection").
    own = spark.newSession()
    own.dataSource.register(MqgateSource)
    return (
        own.readStream.format("mqgate")
        .options(url=url, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=most_a_batch)
        .load()
    )


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]), int(sys.argv[5]))
