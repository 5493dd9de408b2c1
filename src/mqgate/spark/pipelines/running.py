"""All pipelines in one driver: which there are, and when the scheduled ones are due."""

import threading
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from mqgate.spark.pipelines import archive, live
from mqgate.spark.pipelines.due import judge_due
from mqgate.spark.pipelines.judging import find_stuck
from mqgate.spark.pipelines.plan import Plan, own_session
from mqgate.spark.pipelines.queries import start_archive, start_minutes
from mqgate.spark.pipelines.supervise import Job, Live, Supervisor
from mqgate.stats.store import StatsStore
from mqgate.stats.tables import Span

__all__ = ["jobs", "queries", "run_all"]

_HOUR = timedelta(hours=1)


def run_all(
    spark: SparkSession,
    plan: Plan,
    store: StatsStore,
    kept: Mapping[Span, timedelta],
    renewed: Collection[str],
    stopping: threading.Event,
    *,
    is_once: bool,
    say: Callable[[str], None],
) -> None:
    """Run until told to stop; `is_once`: until the live queries have read what is there, and each job ran."""
    started = queries(spark, plan, store, renewed)
    scheduled = jobs(spark, plan, store, kept)
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


def queries(spark: SparkSession, plan: Plan, store: StatsStore, renewed: Collection[str]) -> list[Live]:
    """The live ones."""
    return [
        Live(live.PIPELINE, lambda: start_minutes(spark, plan, store, is_renewed=live.PIPELINE in renewed)),
        Live(archive.PIPELINE, lambda: start_archive(spark, plan, is_renewed=archive.PIPELINE in renewed)),
    ]


def jobs(spark: SparkSession, plan: Plan, store: StatsStore, kept: Mapping[Span, timedelta]) -> list[Job]:
    """The scheduled ones. Each has a session of its own, as the live queries have."""

    def roll_up() -> str:
        hours = store.roll_up()
        return f"{hours} hours rolled up" if hours else ""

    def reconcile() -> str:
        rows = judge_due(own_session(spark), plan, store, datetime.now(UTC))
        broken = [f"{row['topic']} of {row['group']}" for row in rows if row["state"] == "broken"]
        return f"{len(rows)} reconciled{', BROKEN: ' + ', '.join(broken) if broken else ''}"

    def look_for_stuck() -> str:
        found = find_stuck(own_session(spark), plan, store)
        return f"{found} messages are stuck" if found else ""

    def tidy() -> str:
        now = datetime.now(UTC)
        gone = store.tidy(now, kept)
        swept = archive.sweep(plan.archive_path, now, plan.archive_retention) if plan.archive_retention else 0
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
