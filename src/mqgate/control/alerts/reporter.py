"""Reports what this gateway observed, for the gateway that evaluates the rules."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

import structlog

from mqgate.control.alerts.counts import CountWindow
from mqgate.control.checks import Check, run_check
from mqgate.core.alarms import GatewayReport
from mqgate.core.errors import MqgateError
from mqgate.ports.gateway_reports import GatewayReports

__all__ = ["Reporter"]

_log = structlog.get_logger()


class Reporter:
    """Writes the report of this gateway. `checks` are those of its servers: broker, redis, postgres."""

    def __init__(
        self,
        store: GatewayReports,
        counts: CountWindow,
        checks: Mapping[str, Check],
        clock: Callable[[], datetime],
        *,
        gateway: str,
    ) -> None:
        self._store = store
        self._counts = counts
        self._checks = checks
        self._clock = clock
        self._gateway = gateway

    async def run_once(self) -> GatewayReport:
        """Store a report, if the store is available, and return it."""
        results = await asyncio.gather(*map(run_check, self._checks.values()))
        failed = [
            name for part, result in zip(self._checks, results, strict=True) for name in _unreachable(part, result)
        ]
        counts = self._counts.sample(self._clock())
        report = GatewayReport(gateway=self._gateway, unreachable=tuple(failed), counts=counts)
        try:
            await self._store.add(report)
        except MqgateError as error:
            _log.warning("gateway report not stored", error=error.detail)
        return report


def _unreachable(part: str, result: str | dict[str, str]) -> list[str]:
    """Return the names of the servers of a part that failed its check."""
    if isinstance(result, str):
        return [] if result == "ok" else [part]
    return [f"{part} {name}" for name, state in result.items() if state != "ok"]
