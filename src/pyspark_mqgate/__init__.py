"""Registers the data source `mqgate` with Spark, which looks for modules of this name."""

from mqgate.spark.source import MqgateSource as DefaultSource

__all__ = ["DefaultSource"]
