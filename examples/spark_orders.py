#!/usr/bin/env python3
# ruff: noqa: T201 - an example prints
"""A topic as a DataFrame, cell by cell: read it, aggregate, write the result to another topic.

python examples/spark_orders.py --url http://127.0.0.1:8080
"""

# %% Imports and arguments
import argparse
import json
import tempfile

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from mqgate.client import Client
from mqgate.spark.session import session

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--url", default="http://127.0.0.1:8080")
arguments.add_argument("--orders", default="orders", help="topic to read")
arguments.add_argument("--totals", default="order-totals", help="topic to write")
arguments.add_argument("--checkpoint", default=None, help="directory of the checkpoint of the stream")
args = arguments.parse_args()

# %% Two topics, and a few orders
client = Client(args.url)
for topic in (args.orders, args.totals):
    client.topics.put(topic, {"queues": 4})
orders = [{"customer": name, "amount": amount} for amount in range(1, 11) for name in ("ada", "bob", "eve")]
client.publish_batch(args.orders, [{"body": order, "key": order["customer"]} for order in orders])

# %% A local session; it finds Java by itself
spark = session("orders", "local[2]", **{"spark.sql.shuffle.partitions": 2})

# %% Read the whole topic; the schema selects only the columns that are used
rows = (
    spark.read.format("mqgate")
    .options(url=args.url, subscribe=args.orders)
    .schema("body STRING, storedAt TIMESTAMP")
    .load()
)
parsed = rows.select(F.from_json("body", "customer STRING, amount INT").alias("order"), "storedAt").select("order.*")
parsed.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("total")).orderBy("customer").show()

# %% The same as a stream: after every batch of orders one message per customer who ordered, exactly once
checkpoint = args.checkpoint or tempfile.mkdtemp(prefix="orders-")
totals_so_far = (
    spark.readStream.format("mqgate")
    .options(url=args.url, subscribe=args.orders, startingOffsets="earliest", maxOffsetsPerTrigger=1000)
    .schema("body STRING, storedAt TIMESTAMP")
    .load()
    .select(F.from_json("body", "customer STRING, amount INT").alias("order"))
    .groupBy("order.customer")
    .agg(F.count("*").alias("orders"), F.sum("order.amount").alias("total"))
    .select(F.col("customer").alias("key"), F.to_json(F.struct("customer", "orders", "total")).alias("body"))
)


def write(batch: DataFrame, number: int) -> None:
    """Write one batch. Spark has no update mode for Python sinks; a unique `writeId` makes a batch write idempotent."""
    options = {"url": args.url, "topic": args.totals, "writeId": f"{checkpoint} {number}"}
    batch.write.format("mqgate").options(**options).mode("append").save()


query = (
    totals_so_far.writeStream.foreachBatch(write)
    .outputMode("update")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# %% Show the written messages
totals = spark.read.format("mqgate").options(url=args.url, subscribe=args.totals).schema("body STRING").load()
for row in sorted(totals.collect()):
    print(json.dumps(json.loads(row.body)))
spark.stop()
