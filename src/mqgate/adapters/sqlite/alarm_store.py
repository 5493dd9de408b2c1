"""AlarmStore on the embedded engine: alarms and notifications as JSON."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.core.alarms import Alarm, ChannelState, Delivery, DeliveryState, Notification
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.message import instant, milliseconds
from mqgate.ports.alarm_store import AlarmChanges, OpenAlarms

__all__ = ["SqliteAlarmStore"]

_T = TypeVar("_T")
_SQL = queries("alarms")
_MS = timedelta(milliseconds=1)
_NEWEST = 1 << 62


class SqliteAlarmStore:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def acquire(self, holder: str, ttl: timedelta) -> int | None:
        def job(tx: Transaction) -> int | None:
            row = tx.one(_SQL["acquire"], (holder, tx.now_ms, ttl // _MS))
            return None if row is None else int(row[0])

        return await self._engine.step(job)

    async def release(self, holder: str) -> None:
        await self._engine.step(lambda tx: tx.execute(_SQL["release"], (holder,)))

    async def load(self) -> OpenAlarms:
        def job(view: View) -> tuple[list[Any], list[Any]]:
            return view.all(_SQL["open_alarms"]), view.all(_SQL["pending_deliveries"])

        alarms, deliveries = await self._engine.read(job)
        return OpenAlarms(
            alarms=[msgspec.json.decode(entry, type=Alarm) for (entry,) in alarms],
            deliveries=[_delivery(row) for row in deliveries],
        )

    async def save(self, holder: str, term: int, changes: AlarmChanges) -> bool:
        def job(tx: Transaction) -> bool:
            if tx.one(_SQL["holds"], (holder, term)) is None:
                return False
            _write(tx, changes)
            return True

        return await self._engine.write(job)

    async def alarms(self, limit: int, before: str | None) -> tuple[Sequence[Alarm], str | None]:
        return await self._page("alarms", limit, before, Alarm)

    async def notifications(self, limit: int, before: str | None) -> tuple[Sequence[Notification], str | None]:
        return await self._page("notifications", limit, before, Notification)

    async def _page(self, name: str, limit: int, before: str | None, kind: type[_T]) -> tuple[list[_T], str | None]:
        (newest,) = (_NEWEST,) if before is None else parse_cursor(before, MAX_ROW)
        rows = await self._engine.read(lambda view: view.all(_SQL[name], (newest, limit + 1)))
        found = [msgspec.json.decode(entry, type=kind) for _, entry in rows[:limit]]
        return found, str(rows[limit - 1][0]) if len(rows) > limit else None

    async def channel_states(self) -> Sequence[ChannelState]:
        rows = await self._engine.read(lambda view: view.all(_SQL["channel_states"]))
        return [
            ChannelState(
                channel=channel,
                pending=pending,
                failed=failed,
                last_sent_at=None if sent is None else instant(sent),
                error=error,
            )
            for channel, pending, failed, sent, error in rows
        ]

    async def tidy(self, kept: timedelta) -> None:
        def job(tx: Transaction) -> None:
            before = tx.now_ms - kept // _MS
            tx.execute(_SQL["tidy_alarms"], (before,))
            tx.execute(_SQL["tidy_notifications"], (before,))
            tx.execute(_SQL["tidy_deliveries"])

        await self._engine.write(job)


def _write(tx: Transaction, changes: AlarmChanges) -> None:
    for alarm in changes.alarms:
        tx.execute(_SQL["save_alarm"], (alarm.id, alarm.is_open, tx.now_ms, msgspec.json.encode(alarm)))
    for alarm_id in changes.dropped:
        tx.execute(_SQL["drop_alarm"], (alarm_id,))
    for notification in changes.notifications:
        values = (notification.id, milliseconds(notification.at), msgspec.json.encode(notification))
        tx.execute(_SQL["save_notification"], values)
    for item in changes.deliveries:
        key = (item.notification.id, item.channel)
        tx.execute(_SQL["save_delivery"], (*key, item.state, item.attempts, milliseconds(item.due), item.error))


def _delivery(row: tuple[Any, ...]) -> Delivery:
    entry, channel, state, attempts, due, error = row
    return Delivery(
        notification=msgspec.json.decode(entry, type=Notification),
        channel=channel,
        state=DeliveryState(state),
        attempts=attempts,
        due=instant(due),
        error=error,
    )
