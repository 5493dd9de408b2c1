"""Registers the data source `mqgate` with Spark, which imports modules named `pyspark_*`."""

from mqgate.spark.source import MqgateSource as DefaultSource

__all__ = ["DefaultSource"]
