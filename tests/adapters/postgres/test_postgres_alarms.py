"""Alarms in PostgreSQL."""

from collections.abc import Awaitable, Callable

import pytest

from mqgate.adapters.postgres.alarm_settings import PostgresAlarmSettings
from mqgate.adapters.postgres.alarm_store import PostgresAlarmStore
from mqgate.adapters.postgres.database import Database
from mqgate.adapters.postgres.gateway_reports import PostgresGatewayReports
from mqgate.adapters.postgres.presence import Presence
from mqgate.testing.alarm_settings_contract import AlarmSettingsContract, GatewayReportsContract
from mqgate.testing.alarm_store_contract import AlarmStoreContract

Restart = Callable[[], Awaitable[tuple[Database, Presence]]]


class TestPostgresAlarmStore(AlarmStoreContract):
    @pytest.fixture
    def store(self, database: Database) -> PostgresAlarmStore:
        return PostgresAlarmStore(database)

    @pytest.fixture
    def reopen(self, restart: Restart) -> Callable[[], Awaitable[PostgresAlarmStore]]:
        async def reopen() -> PostgresAlarmStore:
            return PostgresAlarmStore((await restart())[0])

        return reopen


class TestPostgresAlarmSettings(AlarmSettingsContract):
    @pytest.fixture
    def settings_store(self, database: Database) -> PostgresAlarmSettings:
        return PostgresAlarmSettings(database)

    @pytest.fixture
    def reopen(self, restart: Restart) -> Callable[[], Awaitable[PostgresAlarmSettings]]:
        async def reopen() -> PostgresAlarmSettings:
            return PostgresAlarmSettings((await restart())[0])

        return reopen


class TestPostgresGatewayReports(GatewayReportsContract):
    @pytest.fixture
    def reports(self, database: Database) -> PostgresGatewayReports:
        return PostgresGatewayReports(database)
