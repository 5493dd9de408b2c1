"""Which hours are to be judged: the last ones, again and again, and those that never were."""

from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from mqgate.core.message import instant, milliseconds
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.hourly_reconciliation import is_left_out, reconcile_hour, whole_hours
from mqgate.stats.store import StatsStore

__all__ = ["reconcile_due"]

_POSITION = ("reconcile", "", "")
_HOUR = timedelta(hours=1)
# At a time: nothing else that is scheduled has its turn meanwhile.
_MAX_MISSED = 12


def reconcile_due(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, now: datetime
) -> list[dict[str, Any]]:
    """Judge the last whole hours, and before them some of those that were missed, as far back as minutes are kept.

    An hour was missed if nobody ran, or if a topic could not be read. Up to where none was stands in the tables.
    """
    recent = whole_hours(now, config.reconcile_hours)
    if not recent:
        return []
    (oldest,) = whole_hours(now - config.minutes, 1)
    known = [instant(at) for *_, at in store.read("positions", _POSITION[0])]
    due = max(oldest, *known) if known else recent[0]
    missed = [due + number * _HOUR for number in range(_MAX_MISSED) if due + number * _HOUR < recent[0]]
    rows = []
    for hour in (*missed, *recent):
        found = reconcile_hour(spark, config, store, hour)
        if hour == due and not any(map(is_left_out, found)):
            due += _HOUR
            store.put({"positions": [(*_POSITION, milliseconds(due))]})
        rows += found
    return rows
