"""GatewayReports on the embedded engine. Losing the last reports in a power cut is harmless, so no write is synced."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.alarms import GatewayReport

__all__ = ["SqliteGatewayReports"]

_SQL = queries("alarms")
_MS = timedelta(milliseconds=1)
_KEPT_MS = 86_400_000


class SqliteGatewayReports:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, report: GatewayReport) -> None:
        def job(tx: Transaction) -> None:
            tx.execute(_SQL["add_report"], (report.gateway, tx.now_ms, msgspec.json.encode(report)))

        await self._engine.step(job)

    async def recent(self, max_age: timedelta) -> Sequence[GatewayReport]:
        def job(tx: Transaction) -> list[tuple[bytes]]:
            tx.execute(_SQL["forget_reports"], (tx.now_ms - _KEPT_MS,))
            return tx.all(_SQL["reports"], (tx.now_ms - max_age // _MS,))

        return [msgspec.json.decode(entry, type=GatewayReport) for (entry,) in await self._engine.step(job)]
