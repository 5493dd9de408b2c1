"""Evaluates the rules on one gateway of the deployment, and sends the notifications.

    report      every gateway stores what it observed
    collect     the holder of the lease reads the values of all rules
    advance     alarms change their states                       (model.py)
    plan        due notifications are grouped                    (grouping.py)
    save        alarms and notifications are stored, before anything is sent
    send        deliveries are attempted, and their results are stored  (outbox.py)

If the holder is killed between sending and storing the result, the next holder sends the same notification once more,
under the same id. While the store is unavailable, the holder continues in memory and stores everything afterwards,
unless another gateway has taken the lease. As soon as that is possible, it evaluates the outage of PostgreSQL only.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import structlog

from mqgate.background import Background
from mqgate.control.alerts.grouping import GroupingTimes, plan
from mqgate.control.alerts.lease import EvaluatorLease
from mqgate.control.alerts.model import Readings, advance
from mqgate.control.alerts.outbox import Outbox
from mqgate.control.alerts.reporter import Reporter
from mqgate.core.alarms import (
    Alarm,
    AlarmSettings,
    AlarmState,
    Delivery,
    GatewayReport,
    Notification,
    NotificationKind,
    RuleName,
)
from mqgate.core.errors import MqgateError
from mqgate.ports.alarm_settings import AlarmSettingsStore
from mqgate.ports.alarm_store import AlarmChanges, AlarmStore
from mqgate.telemetry.metrics import Metrics

__all__ = ["Evaluator"]

Collect = Callable[[GatewayReport], Awaitable[Readings]]
# What a holder that cannot reach the store may notify, although another gateway may have the lease.
_OUTAGE_RULES = frozenset({RuleName.POSTGRES_UNREACHABLE})
_log = structlog.get_logger()


class Evaluator:
    """Background service of every gateway. `collect` returns the values of the rules, given the report of this one."""

    def __init__(
        self,
        *,
        lease: EvaluatorLease,
        store: AlarmStore,
        settings: AlarmSettingsStore,
        reporter: Reporter,
        collect: Collect,
        outbox: Outbox,
        metrics: Metrics,
        clock: Callable[[], datetime],
        times: GroupingTimes,
        interval: timedelta,
    ) -> None:
        self._lease = lease
        self._store = store
        self._settings_store = settings
        self._reporter = reporter
        self._collect = collect
        self._outbox = outbox
        self._metrics = metrics
        self._clock = clock
        self._times = times
        self._interval = interval.total_seconds()
        self._background = Background(self._loop)
        self._term: int | None = None
        self._settings = AlarmSettings()
        self._alarms: dict[str, Alarm] = {}
        self._sent: dict[tuple[RuleName, NotificationKind], datetime] = {}
        self._unsaved = AlarmChanges()

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()
        self._forget()

    async def run_once(self) -> None:
        """Report what this gateway observed. If it holds the lease, evaluate the rules and send notifications."""
        report = await self._reporter.run_once()
        term = self._lease.term
        if term is None:
            self._forget()
            return
        if self._term != term and not await self._take_over(term):
            return
        await self._load_settings()
        now = self._clock()
        readings = await self._collect(report)
        if not self._lease.is_certain:
            # What is missing is unknown, and changes nothing.
            readings = {rule: readings.get(rule) for rule in _OUTAGE_RULES}
        changes = self._evaluate(readings, now)
        if not await self._save(term, changes):
            return
        delivered = await self._outbox.run_once(self._settings.channels, now)
        await self._save(term, AlarmChanges(deliveries=delivered))

    async def _take_over(self, term: int) -> bool:
        """Load what the previous holder stored. Return False if the store is unavailable."""
        self._forget()
        try:
            found = await self._store.load()
        except MqgateError as error:
            _log.warning("alarms not loaded", error=error.detail)
            return False
        self._alarms = {alarm.id: alarm for alarm in found.alarms}
        self._outbox.load(found.deliveries)
        self._term = term
        return True

    async def _load_settings(self) -> None:
        # While the store is unavailable, the last settings apply.
        with contextlib.suppress(MqgateError):
            self._settings = await self._settings_store.load()

    def _evaluate(self, readings: Readings, now: datetime) -> AlarmChanges:
        """Advance all alarms and plan notifications. Return what has to be stored."""
        settings, before = self._settings, self._alarms
        advanced = advance(list(before.values()), readings, settings.overrides, now)
        dropped = [alarm.id for alarm in advanced if alarm.state is AlarmState.INACTIVE]
        active = [alarm for alarm in advanced if alarm.state is not AlarmState.INACTIVE]
        shared = [] if self._lease.is_certain else [alarm for alarm in active if alarm.rule not in _OUTAGE_RULES]
        own = active if self._lease.is_certain else [alarm for alarm in active if alarm.rule in _OUTAGE_RULES]
        after, notifications = plan(own, settings.silences, self._times, self._sent, now)
        after += shared
        self._sent |= {(notification.rule, notification.kind): now for notification in notifications}
        self._alarms = {alarm.id: alarm for alarm in after if alarm.is_open}
        self._export()
        return AlarmChanges(
            alarms=[alarm for alarm in after if before.get(alarm.id) != alarm],
            dropped=dropped,
            notifications=notifications,
            deliveries=self._outbox.add(notifications, settings.channels),
        )

    async def _save(self, term: int, changes: AlarmChanges) -> bool:
        """Store changes, with those that could not be stored before. Return False if another gateway has the lease."""
        self._unsaved = _merged(self._unsaved, changes)
        if not self._unsaved:
            return True
        try:
            is_saved = await self._store.save(self._lease.holder, term, self._unsaved)
        except MqgateError as error:
            _log.warning("alarms not stored", error=error.detail)
            return True
        if is_saved:
            self._unsaved = AlarmChanges()
        else:
            _log.info("evaluator lease lost", term=term)
            self._lease.term = None
            self._forget()
        return is_saved

    def _forget(self) -> None:
        self._term = None
        self._alarms, self._sent = {}, {}
        self._unsaved = AlarmChanges()
        self._outbox.load(())
        self._metrics.clear_deployment()

    def _export(self) -> None:
        self._metrics.alarms.clear()
        for alarm in self._alarms.values():
            if alarm.state is not AlarmState.RESOLVED:
                self._metrics.alarms.labels(alarm.rule, alarm.state).inc()

    async def _loop(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lease.taken.wait(), self._interval)
            self._lease.taken.clear()
            try:
                await self.run_once()
            except MqgateError as error:
                _log.warning("evaluation failed", error=error.detail)
            except Exception:  # noqa: BLE001 - logged; an evaluator that ends would end all alarms without notice
                _log.exception("evaluation failed")


def _merged(before: AlarmChanges, after: AlarmChanges) -> AlarmChanges:
    """Return the changes of both; the later state of an alarm or delivery replaces the earlier one."""
    dropped = {*before.dropped, *after.dropped}
    alarms = {alarm.id: alarm for alarm in (*before.alarms, *after.alarms) if alarm.id not in dropped}
    return AlarmChanges(
        alarms=list(alarms.values()),
        dropped=sorted(dropped),
        notifications=_by_id((*before.notifications, *after.notifications)),
        deliveries=_by_place((*before.deliveries, *after.deliveries)),
    )


def _by_id(notifications: Sequence[Notification]) -> list[Notification]:
    return list({notification.id: notification for notification in notifications}.values())


def _by_place(deliveries: Sequence[Delivery]) -> list[Delivery]:
    return list({(item.notification.id, item.channel): item for item in deliveries}.values())
