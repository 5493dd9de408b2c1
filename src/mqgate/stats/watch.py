"""How the pipelines are, in the gateway's metrics."""

import asyncio
from collections.abc import Callable

from mqgate.core.errors import MqgateError
from mqgate.stats import reading
from mqgate.stats.store import StatsStore
from mqgate.telemetry.metrics import Metrics

__all__ = ["PipelineWatch"]


class PipelineWatch:
    """Looks into the store now and then. Without one, or while it cannot be read, the metrics stay as they are."""

    def __init__(self, open_store: Callable[[], StatsStore], metrics: Metrics) -> None:
        self._open = open_store
        self._metrics = metrics

    async def run_once(self) -> None:
        try:
            found = await asyncio.to_thread(lambda: reading.pipelines(self._open()))
        except MqgateError:
            return
        for row in found:
            name = row["pipeline"]
            self._metrics.pipeline_running.labels(name).set(row["state"] == "running")
            self._metrics.pipeline_behind.labels(name).set(row["behind"] or 0)
            self._metrics.pipeline_seen.labels(name).set(row["at"] / 1000)
