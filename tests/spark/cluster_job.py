"""A job for a cluster: read a topic, count by tag, write the counts to another.

`spark-submit --py-files mqgate.zip cluster_job.py URL TOPIC TARGET`. It also says where its workers found mqgate.
"""

import json
import sys

from pyspark.sql import SparkSession

from mqgate.spark.source import MqgateSource


def main(url: str, topic: str, target: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    # By its name Spark finds it only where it is installed, not in what came along with the job.
    spark.dataSource.register(MqgateSource)
    rows = spark.read.format("mqgate").options(url=url, subscribe=topic).schema("tag STRING, queue STRING").load()
    counts = rows.groupBy("tag").count().selectExpr("tag AS key", "to_json(struct(tag, count)) AS body")
    counts.write.format("mqgate").options(url=url, topic=target).mode("append").save()
    found = spark.sparkContext.parallelize(range(8), 8).map(_where).distinct().collect()
    print(json.dumps({"workers": sorted(found)}))  # noqa: T201 - read by the test
    spark.stop()


def _where(_number: int) -> str:
    import mqgate  # noqa: PLC0415 - on the worker

    return str(mqgate.__file__)


if __name__ == "__main__":
    main(*sys.argv[1:4])
