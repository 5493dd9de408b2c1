"""Events, logs, statistics and the Spark pipelines."""

from dataclasses import dataclass
from datetime import timedelta

from mqgate.settings.option import option

__all__ = ["AlarmsSettings", "EventsSettings", "LoggingSettings", "PipelineSettings", "StatsSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    enabled: bool = option(default=True, doc="record events to the topic mqgate_events, for the Spark pipelines")
    gateway: str = option(
        "",
        "name of this gateway in its events, the same after a restart; empty: host name and port. Workers append their "
        "number",
    )
    queues: int = option(4, "number of queues of that topic; on RocketMQ, per broker")
    retention: timedelta = option(timedelta(days=3), "time that events are kept; on RocketMQ, the brokers decide")
    flush_interval: timedelta = option(timedelta(seconds=1), "time between two writes while there are events")
    max_buffered: int = option(
        100_000, "maximum number of events that wait while the log is unavailable; more are dropped and counted"
    )
    lag_interval: timedelta = option(
        timedelta(seconds=15), "time between two samples of the lag of active groups; 0: no samples"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmsSettings:
    enabled: bool = option(default=True, doc="sample all groups and evaluate the alarm rules, on one of the gateways")
    interval: timedelta = option(
        timedelta(seconds=15), "time between two evaluations; every gateway reports its counts as often"
    )
    group_interval: timedelta = option(
        timedelta(minutes=1), "minimum time between two notifications of the same rule to a channel"
    )
    repeat_interval: timedelta = option(
        timedelta(hours=4), "time after which an alarm that still fires is notified again"
    )
    retention: timedelta = option(timedelta(days=30), "time that resolved alarms and notifications are kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSettings:
    level: str = option("info", "minimum level: debug, info, warning or error")
    format: str = option("auto", "json, console, or auto: console on a terminal")
    requests: str = option("failed", "requests that are logged: failed (5xx responses) or all")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSettings:
    engine: str = option(
        "sqlite",
        "engine that stores the statistics of the pipelines: sqlite (stats.sqlite3 in the data directory) or postgres",
    )
    minutes: timedelta = option(timedelta(days=7), "time that statistics by the minute are kept; whole days")
    hours: timedelta = option(timedelta(days=90), "time that statistics by the hour are kept")
    days: timedelta = option(timedelta(days=730), "time that statistics by the day are kept")
    lag: timedelta = option(timedelta(days=7), "time that lag by the minute is kept")
    findings: timedelta = option(
        timedelta(days=90), "time that reconciliations, their findings and malformed input are kept"
    )
    batches: timedelta = option(timedelta(days=3), "time that batch numbers are kept, to recognise a repeated batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    directory: str = option(
        "./pipelines", "directory of the checkpoints and the archive; any path that the Spark driver can write"
    )
    master: str = option("local[2]", "Spark master: local[2], spark://host:7077, yarn, k8s://...")
    trigger: timedelta = option(timedelta(seconds=10), "time between two batches of a live pipeline")
    max_offsets: int = option(2_000, "maximum number of event batches in one Spark batch")
    max_messages: int = option(200_000, "maximum number of messages archived in one Spark batch")
    archive: tuple[str, ...] = option((), "topics to archive; events are always archived")
    archive_retention: timedelta = option(
        timedelta(0), "time that the archive is kept, in whole hours; 0: without limit"
    )
    reconcile_hours: int = option(3, "number of the most recent whole hours that are reconciled every hour")
    stuck_deliveries: int = option(5, "number of deliveries after which an unsettled message is stuck")
    stuck_age: timedelta = option(timedelta(hours=1), "time after which a delivered, unsettled message is stuck")
    events_topic: str = option("mqgate_events", "topic to which gateways record events")
