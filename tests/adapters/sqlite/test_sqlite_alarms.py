"""Alarms in the embedded engine."""

from collections.abc import Awaitable, Callable

import pytest

from mqgate.adapters.sqlite.alarm_settings import SqliteAlarmSettings
from mqgate.adapters.sqlite.alarm_store import SqliteAlarmStore
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.gateway_reports import SqliteGatewayReports
from mqgate.testing.alarm_settings_contract import AlarmSettingsContract, GatewayReportsContract
from mqgate.testing.alarm_store_contract import AlarmStoreContract

ReopenEngine = Callable[[], Awaitable[Engine]]


class TestSqliteAlarmStore(AlarmStoreContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteAlarmStore:
        return SqliteAlarmStore(engine)

    @pytest.fixture
    def reopen(self, reopen_engine: ReopenEngine) -> Callable[[], Awaitable[SqliteAlarmStore]]:
        async def reopen() -> SqliteAlarmStore:
            return SqliteAlarmStore(await reopen_engine())

        return reopen


class TestSqliteAlarmSettings(AlarmSettingsContract):
    @pytest.fixture
    def settings_store(self, engine: Engine) -> SqliteAlarmSettings:
        return SqliteAlarmSettings(engine)

    @pytest.fixture
    def reopen(self, reopen_engine: ReopenEngine) -> Callable[[], Awaitable[SqliteAlarmSettings]]:
        async def reopen() -> SqliteAlarmSettings:
            return SqliteAlarmSettings(await reopen_engine())

        return reopen


class TestSqliteGatewayReports(GatewayReportsContract):
    @pytest.fixture
    def reports(self, engine: Engine) -> SqliteGatewayReports:
        return SqliteGatewayReports(engine)
