"""Assembles the alarms: what is measured, the evaluator, and the channels."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from mqgate.bootstrap.opened import Opened
from mqgate.consumption.positions import PositionService
from mqgate.control.alerts.counts import CountWindow, read_counts
from mqgate.control.alerts.evaluator import Evaluator
from mqgate.control.alerts.grouping import GroupingTimes
from mqgate.control.alerts.lease import EvaluatorLease
from mqgate.control.alerts.model import Readings
from mqgate.control.alerts.outbox import Outbox
from mqgate.control.alerts.readings import group_readings, outage_readings, traffic_readings
from mqgate.control.alerts.reporter import Reporter
from mqgate.control.alerts.samples import GroupSampler
from mqgate.control.alerts.service import AlarmService
from mqgate.control.checks import Check
from mqgate.control.registry.service import Registry
from mqgate.core.alarms import GatewayReport, RuleName
from mqgate.core.errors import MqgateError
from mqgate.engines import channel_senders
from mqgate.ports.directory import Directory
from mqgate.stats import reports
from mqgate.stats.engine import open_stats

__all__ = ["Alarms", "build_alarms"]


class Alarms(NamedTuple):
    """The use cases of operators, and the background services."""

    service: AlarmService
    evaluator: Evaluator
    lease: EvaluatorLease


def build_alarms(opened: Opened, registry: Registry, directory: Directory, positions: PositionService) -> Alarms:
    options, metrics = opened.settings.alarms, opened.metrics
    stores, clock = opened.control.alarms, opened.control.clock
    lease = EvaluatorLease(stores.alarms)
    senders = channel_senders()
    sampler = GroupSampler(positions.standings, opened.leases.store, opened.leases.clock)
    window = CountWindow(partial(read_counts, metrics))
    evaluator = Evaluator(
        lease=lease,
        store=stores.alarms,
        settings=stores.settings,
        reporter=Reporter(stores.reports, window, _server_checks(opened), clock, gateway=uuid4().hex),
        collect=_Collector(opened, directory, sampler).collect,
        outbox=Outbox(senders, metrics),
        metrics=metrics,
        clock=clock,
        times=GroupingTimes(group=options.group_interval, repeat=options.repeat_interval),
        interval=options.interval,
    )
    return Alarms(AlarmService(stores.settings, senders, registry.record, clock), evaluator, lease)


def _server_checks(opened: Opened) -> dict[str, Check]:
    checks: dict[str, Check] = {**opened.leases.checks, **opened.control.checks}
    if opened.settings.messages.engine == "rocketmq":
        checks["broker"] = opened.log.log.probe
    return {name: check for name, check in checks.items() if name in {"broker", "redis", "postgres"}}


class _Collector:
    """Reads the values of all rules and exports the lag of groups. What cannot be read is unknown."""

    def __init__(self, opened: Opened, directory: Directory, sampler: GroupSampler) -> None:
        self._opened = opened
        self._directory = directory
        self._sampler = sampler

    async def collect(self, own: GatewayReport) -> Readings:
        snapshot = self._directory.snapshot
        groups, timers, pipelines, found = await asyncio.gather(
            self._groups(), _known(self._late_timers), _known(self._pipelines), self._reports(own)
        )
        return {
            **groups,
            **(timers or {}),
            **(pipelines or {}),
            **traffic_readings(found, snapshot.groups, snapshot.topics),
            **outage_readings(found),
        }

    async def _groups(self) -> Readings:
        samples = await self._sampler.sample(self._directory.snapshot.groups.values())
        metrics = self._opened.metrics
        metrics.group_lag.clear()
        metrics.group_oldest_age.clear()
        for group, sample in samples.items():
            if sample is not None:
                metrics.group_lag.labels(group).set(sample.lag)
                metrics.group_oldest_age.labels(group).set(sample.oldest_age)
        return group_readings(samples)

    async def _late_timers(self) -> Readings:
        control = self._opened.control
        now = control.clock()
        late, _ = await control.timers.list(topic=None, since=None, until=now, limit=1, after=None)
        overdue = (now - late[0].due).total_seconds() if late else 0.0
        return {RuleName.LATE_TIMERS: {"": overdue}}

    async def _pipelines(self) -> Readings:
        settings = self._opened.settings
        rows = await asyncio.to_thread(lambda: reports.pipelines(open_stats(settings, is_writing=False)))
        return {
            RuleName.PIPELINE_BEHIND: {row["pipeline"]: float(row["behind"] or 0) for row in rows},
            RuleName.PIPELINE_FAILED: {row["pipeline"]: float(row["state"] == "failed") for row in rows},
        }

    async def _reports(self, own: GatewayReport) -> list[GatewayReport]:
        """Return the recent reports of all gateways; while the store is unavailable, only that of this one."""
        try:
            found = await self._opened.control.alarms.reports.recent(3 * self._opened.settings.alarms.interval)
        except MqgateError:
            found = ()
        return [own, *(report for report in found if report.gateway != own.gateway)]


async def _known(read: Callable[[], Awaitable[Readings]]) -> Readings | None:
    try:
        return await read()
    except MqgateError:
        return None
