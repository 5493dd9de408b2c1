"""Runs all pipelines in one driver: the live queries and the scheduled jobs."""

import threading
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from mqgate.spark.pipelines import archive, live
from mqgate.spark.pipelines.config import PipelineConfig, own_session
from mqgate.spark.pipelines.due_hours import reconcile_due
from mqgate.spark.pipelines.hourly_reconciliation import find_stuck
from mqgate.spark.pipelines.queries import start_archive, start_minutes
from mqgate.spark.pipelines.supervisor import Job, LiveQuery, Supervisor
from mqgate.stats.store import StatsStore
from mqgate.stats.tables import RetentionClass

__all__ = ["jobs", "queries", "run_all"]

_HOUR = timedelta(hours=1)


def run_all(
    spark: SparkSession,
    config: PipelineConfig,
    store: StatsStore,
    kept: Mapping[RetentionClass, timedelta],
    renewed: Collection[str],
    stopping: threading.Event,
    *,
    is_once: bool,
    say: Callable[[str], None],
) -> None:
    """Run until `stopping` is set. With `is_once`, process the available messages, run each job once, and return."""
    started = queries(spark, config, store, renewed)
    scheduled = jobs(spark, config, store, kept)
    supervisor = Supervisor(store, started, scheduled, say)
    if is_once:
        supervisor.run_once()
    else:
        supervisor.run(stopping)


def queries(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, renewed: Collection[str]
) -> list[LiveQuery]:
    """Return the live queries."""
    return [
        LiveQuery(live.PIPELINE, lambda: start_minutes(spark, config, store, is_renewed=live.PIPELINE in renewed)),
        LiveQuery(archive.PIPELINE, lambda: start_archive(spark, config, is_renewed=archive.PIPELINE in renewed)),
    ]


def jobs(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, kept: Mapping[RetentionClass, timedelta]
) -> list[Job]:
    """Return the scheduled jobs. Like the live queries, each uses its own session."""

    def roll_up() -> str:
        hours = store.roll_up()
        return f"{hours} hours rolled up" if hours else ""

    def reconcile() -> str:
        rows = reconcile_due(own_session(spark), config, store, datetime.now(UTC))
        broken = [f"{row['topic']} of {row['group']}" for row in rows if row["state"] == "broken"]
        return f"{len(rows)} reconciled{', BROKEN: ' + ', '.join(broken) if broken else ''}"

    def find_stuck_messages() -> str:
        found = find_stuck(own_session(spark), config, store)
        return f"{found} stuck messages found" if found else ""

    def tidy() -> str:
        now = datetime.now(UTC)
        deleted = store.tidy(now, kept)
        deleted_hours = (
            archive.delete_expired(config.archive_path, now, config.archive_retention)
            if config.archive_retention
            else 0
        )
        return (
            f"removed {sum(deleted.values())} old rows and {deleted_hours} hours of the archive"
            if deleted or deleted_hours
            else ""
        )

    now = datetime.now(UTC)
    # Five minutes past the hour, when the events of the hour have been written.
    past_the_hour = now.replace(minute=5, second=0, microsecond=0) + (_HOUR if now.minute >= 5 else timedelta())  # noqa: PLR2004 - the same five
    return [
        Job("rollup", timedelta(minutes=1), roll_up),
        Job("tidy", _HOUR, tidy),
        Job("stuck", timedelta(minutes=10), find_stuck_messages, due=now + timedelta(minutes=1)),
        Job("reconcile", _HOUR, reconcile, due=past_the_hour),
    ]
