"""GatewayReports in PostgreSQL."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from mqgate.adapters.postgres.database import Database, queries
from mqgate.core.alarms import GatewayReport

__all__ = ["PostgresGatewayReports"]

_SQL = queries("alarms")


class PostgresGatewayReports:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, report: GatewayReport) -> None:
        values = {"gateway": report.gateway, "entry": msgspec.json.encode(report).decode()}
        await self._database.write(_SQL["add_report"], values, is_repeatable=True)

    async def recent(self, max_age: timedelta) -> Sequence[GatewayReport]:
        rows = await self._database.write(_SQL["reports"], {"max_age": max_age}, is_repeatable=True)
        return [msgspec.json.decode(entry, type=GatewayReport) for (entry,) in rows]
