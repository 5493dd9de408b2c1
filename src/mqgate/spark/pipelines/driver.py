"""All pipelines in one driver: which there are, and when the scheduled ones are due."""

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
    """Run until told to stop; `is_once`: until the live queries have read what is there, and each job ran."""
    started = queries(spark, config, store, renewed)
    scheduled = jobs(spark, config, store, kept)
    if not is_once:
        Supervisor(store, started, scheduled, say).run(stopping)
        return
    for each in started:
        query = each.start()
        query.processAllAvailable()
        query.stop()
    now = datetime.now(UTC)
    for job in scheduled:
        job.due = now
    Supervisor(store, [], scheduled, say).step(now)


def queries(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, renewed: Collection[str]
) -> list[LiveQuery]:
    """The live ones."""
    return [
        LiveQuery(live.PIPELINE, lambda: start_minutes(spark, config, store, is_renewed=live.PIPELINE in renewed)),
        LiveQuery(archive.PIPELINE, lambda: start_archive(spark, config, is_renewed=archive.PIPELINE in renewed)),
    ]


def jobs(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, kept: Mapping[RetentionClass, timedelta]
) -> list[Job]:
    """The scheduled ones. Each has a session of its own, as the live queries have."""

    def roll_up() -> str:
        hours = store.roll_up()
        return f"{hours} hours rolled up" if hours else ""

    def reconcile() -> str:
        rows = reconcile_due(own_session(spark), config, store, datetime.now(UTC))
        broken = [f"{row['topic']} of {row['group']}" for row in rows if row["state"] == "broken"]
        return f"{len(rows)} reconciled{', BROKEN: ' + ', '.join(broken) if broken else ''}"

    def look_for_stuck() -> str:
        found = find_stuck(own_session(spark), config, store)
        return f"{found} messages are stuck" if found else ""

    def tidy() -> str:
        now = datetime.now(UTC)
        gone = store.tidy(now, kept)
        swept = archive.sweep(config.archive_path, now, config.archive_retention) if config.archive_retention else 0
        return f"removed {sum(gone.values())} old rows and {swept} hours of the archive" if gone or swept else ""

    now = datetime.now(UTC)
    # Some minutes behind the hour, when what happened in it has been told.
    past_the_hour = now.replace(minute=5, second=0, microsecond=0) + (_HOUR if now.minute >= 5 else timedelta())  # noqa: PLR2004 - the five
    return [
        Job("rollup", timedelta(minutes=1), roll_up),
        Job("tidy", _HOUR, tidy),
        Job("stuck", timedelta(minutes=10), look_for_stuck, due=now + timedelta(minutes=1)),
        Job("reconcile", _HOUR, reconcile, due=past_the_hour),
    ]
