"""Selects the hours to reconcile: the latest hours, repeatedly, and hours that were missed."""

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
# Per run, because no other scheduled job runs meanwhile.
_MAX_MISSED = 12


def reconcile_due(
    spark: SparkSession, config: PipelineConfig, store: StatsStore, now: datetime
) -> list[dict[str, Any]]:
    """Reconcile missed hours, at most _MAX_MISSED and within the retention of minutes, then the last whole hours.

    An hour was missed if the driver was down or a topic could not be read. The store contains the first hour that may
    have been missed.
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
