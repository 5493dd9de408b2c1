"""Configuration of the pipeline driver, and its Spark sessions."""

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mqgate.client import Client
from mqgate.spark.pipelines.decode import MESSAGE, decode_messages
from mqgate.spark.session import session
from mqgate.spark.source import MqgateSource

__all__ = ["PipelineConfig", "own_session", "start"]

_CONF: dict[str, str | int | bool] = {
    # A checkpoint fixes this number at its first start. An aggregated batch has several thousand rows.
    "spark.sql.shuffle.partitions": 2,
    # A topic may have a numeric name.
    "spark.sql.sources.partitionColumnTypeInference.enabled": False,
    "spark.sql.streaming.noDataMicroBatches.enabled": False,
    # The hours of the archive depend on it, so spark-defaults.conf must not change it.
    "spark.sql.session.timeZone": "UTC",
    # Otherwise Spark logs a warning about a truncated plan with every batch.
    "spark.sql.debug.maxToStringFields": 1_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    url: str
    key: str | None = None
    directory: Path
    master: str = "local[2]"
    events_topic: str = "mqgate_events"
    trigger: timedelta = timedelta(seconds=10)
    max_offsets: int = 2_000
    max_messages: int = 200_000
    minutes: timedelta = timedelta(days=7)
    archive: tuple[str, ...] = ()
    archive_retention: timedelta | None = None
    reconcile_hours: int = 3
    stuck_deliveries: int = 5
    stuck_age: timedelta = timedelta(hours=1)
    # Time between reading group positions and events: gateways write events within seconds.
    grace: timedelta = timedelta(seconds=15)

    @property
    def archive_path(self) -> Path:
        return self.directory / "archive"

    def checkpoint(self, pipeline: str) -> Path:
        return self.directory / "checkpoints" / pipeline

    def connect(self) -> Client:
        return Client(self.url, self.key)

    def options(self, **more: Any) -> dict[str, str]:
        """Return options of the source."""
        given = {"url": self.url, **({"key": self.key} if self.key else {}), **more}
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}

    def events(self, spark: SparkSession, **bounds: Any) -> DataFrame:
        """Return the decoded events between two bounds of the events topic, by default from its beginning."""
        options = self.options(subscribe=self.events_topic, properties="json", failOnDataLoss="false", **bounds)
        return decode_messages(spark.read.format("mqgate").options(**options).schema(MESSAGE).load())


def start(config: PipelineConfig, **conf: object) -> SparkSession:
    """Start Spark with the configuration of the pipelines."""
    return session("mqgate-pipelines", config.master, **{**_CONF, **conf})


def own_session(spark: SparkSession) -> SparkSession:
    """Return a new session for one query: queries that share a source may fail (see how-to/use-spark.md)."""
    own = spark.newSession()
    own.dataSource.register(MqgateSource)
    for name, value in _CONF.items():
        own.conf.set(name, value)
    return own
