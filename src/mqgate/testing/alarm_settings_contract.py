"""The contracts of the stores of alarm settings and of gateway reports."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from mqgate.core.alarms import AlarmSettings, Channel, ChannelKind, GatewayReport, RuleName, RuleOverride, Silence
from mqgate.ports.alarm_settings import AlarmSettingsStore
from mqgate.ports.gateway_reports import GatewayReports
from mqgate.testing.clock import NOON, ManualClock

__all__ = ["AlarmSettingsContract", "GatewayReportsContract"]

OVERRIDE = RuleOverride(rule=RuleName.BACKLOG_AGE, subject="billing", threshold=30, hold=timedelta(minutes=1))
CHANNEL = Channel(name="ops", kind=ChannelKind.WEBHOOK, url="https://user:pw@example.org/hook", secret="s")  # noqa: S106
SILENCE = Silence(
    name="s1",
    rule=None,
    subject="billing",
    ends_at=NOON + timedelta(hours=1),
    reason="upgrade \0 ü",
    actor="key k1",
    created_at=NOON,
)


class AlarmSettingsContract:
    """What every store of alarm settings promises. An adapter provides the fixtures `settings_store` and `reopen`."""

    async def test_settings_survive_a_restart(
        self, settings_store: AlarmSettingsStore, reopen: Callable[[], Awaitable[AlarmSettingsStore]]
    ) -> None:
        """Each type has its own names, so one name may be used for several."""
        channel = replace(CHANNEL, name="s1")
        for setting in (OVERRIDE, SILENCE, channel):
            await settings_store.save(setting)

        found = await (await reopen()).load()

        assert found == AlarmSettings(
            overrides={OVERRIDE.name: OVERRIDE}, silences={"s1": SILENCE}, channels={"s1": channel}
        )

    async def test_a_setting_is_replaced_and_removed_by_name(self, settings_store: AlarmSettingsStore) -> None:
        """Both may be repeated after a lost response."""
        for threshold in (1, 2, 2):
            await settings_store.save(replace(OVERRIDE, threshold=threshold))
        await settings_store.save(CHANNEL)

        for _ in range(2):
            await settings_store.remove(CHANNEL)

        found = await settings_store.load()
        assert found.overrides == {OVERRIDE.name: replace(OVERRIDE, threshold=2)}
        assert found.channels == {}


class GatewayReportsContract:
    """What every store of gateway reports promises. An adapter provides the fixtures `reports` and `clock`."""

    async def test_the_last_report_of_each_gateway_is_returned(self, reports: GatewayReports) -> None:
        """The evaluator adds the counts of all gateways."""
        await reports.add(GatewayReport(gateway="b", counts={"dead": {"billing": 1}}))
        await reports.add(GatewayReport(gateway="a"))
        newest = GatewayReport(gateway="b", unreachable=("redis",), counts={"dead": {"billing": 2}})
        await reports.add(newest)

        assert await reports.recent(timedelta(minutes=1)) == [GatewayReport(gateway="a"), newest]

    async def test_a_gateway_that_stopped_no_longer_counts(self, reports: GatewayReports, clock: ManualClock) -> None:
        """Its last counts would otherwise keep an alarm firing."""
        await reports.add(GatewayReport(gateway="a"))
        clock.advance(90)
        await reports.add(GatewayReport(gateway="b"))

        assert [report.gateway for report in await reports.recent(timedelta(minutes=1))] == ["b"]
