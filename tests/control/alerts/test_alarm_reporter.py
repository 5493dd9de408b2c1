"""The report of a gateway: which of its servers it cannot reach."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.gateway_reports import SqliteGatewayReports
from mqgate.control.alerts.counts import CountWindow
from mqgate.control.alerts.readings import outage_readings
from mqgate.control.alerts.reporter import Reporter
from mqgate.core.alarms import RuleName
from mqgate.core.errors import StorageUnavailable
from mqgate.testing.clock import ManualClock


@pytest.fixture
async def reports(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteGatewayReports]:
    engine = Engine(tmp_path / "data", wall_ms=clock)
    yield SqliteGatewayReports(engine)
    await engine.close()


async def respond() -> None:
    """Respond, as a server that is up."""


async def fail() -> None:
    raise StorageUnavailable("no response")


async def some_down() -> Mapping[str, str]:
    return {"name server": "ok", "broker broker-a": "unreachable", "broker broker-b": "refused"}


async def test_servers_that_fail_their_check_are_reported(reports: SqliteGatewayReports, clock: ManualClock) -> None:
    """Brokers by name, so that the same broker counts once for all gateways."""
    checks = {"postgres": respond, "redis": fail, "broker": some_down}
    window = CountWindow(lambda: {"dead": {"billing": 2}})

    report = await Reporter(reports, window, checks, lambda: clock.now, gateway="a").run_once()

    assert await reports.recent(timedelta(minutes=1)) == [report]
    assert report.counts == {"dead": {"billing": 2}}
    values = outage_readings([report])
    assert values[RuleName.BROKER_UNREACHABLE] == {"": 2}
    assert values[RuleName.REDIS_UNREACHABLE] == {"": 1}
    assert values[RuleName.POSTGRES_UNREACHABLE] == {"": 0}
