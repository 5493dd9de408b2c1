"""Exports the state of the pipelines as metrics of the gateway."""

import asyncio
from collections.abc import Callable

from mqgate.core.errors import MqgateError
from mqgate.stats import reports
from mqgate.stats.store import StatsStore
from mqgate.telemetry.metrics import Metrics

__all__ = ["PipelineWatch"]


class PipelineWatch:
    """Background service that updates the metrics. They stay unchanged while the store cannot be read."""

    def __init__(self, open_store: Callable[[], StatsStore], metrics: Metrics) -> None:
        self._open = open_store
        self._metrics = metrics

    async def run_once(self) -> None:
        try:
            found = await asyncio.to_thread(lambda: reports.pipelines(self._open()))
        except MqgateError:
            return
        for row in found:
            name = row["pipeline"]
            self._metrics.pipeline_running.labels(name).set(row["state"] == "running")
            self._metrics.pipeline_behind.labels(name).set(row["behind"] or 0)
            self._metrics.pipeline_seen.labels(name).set(row["at"] / 1000)
