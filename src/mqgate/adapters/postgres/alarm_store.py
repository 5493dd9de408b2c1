"""AlarmStore in PostgreSQL: alarms and notifications as JSON.

`save` locks the row of the lease in share mode, so that the lease cannot change its holder before the commit.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from mqgate.adapters.postgres.database import Database, Transaction, queries
from mqgate.core.alarms import Alarm, ChannelState, Delivery, DeliveryState, Notification
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.ports.alarm_store import AlarmChanges, OpenAlarms

__all__ = ["PostgresAlarmStore"]

_T = TypeVar("_T")
_SQL = queries("alarms")
_NEWEST = 1 << 62


class PostgresAlarmStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, holder: str, ttl: timedelta) -> int | None:
        rows = await self._database.write(_SQL["acquire"], {"holder": holder, "ttl": ttl}, is_repeatable=True)
        return int(rows[0][0]) if rows else None

    async def release(self, holder: str) -> None:
        await self._database.write(_SQL["release"], {"holder": holder}, is_repeatable=True)

    async def load(self) -> OpenAlarms:
        alarms = await self._database.read(_SQL["open_alarms"])
        deliveries = await self._database.read(_SQL["pending_deliveries"])
        return OpenAlarms(
            alarms=[msgspec.json.decode(entry, type=Alarm) for (entry,) in alarms],
            deliveries=[_delivery(row) for row in deliveries],
        )

    async def save(self, holder: str, term: int, changes: AlarmChanges) -> bool:
        async def job(transaction: Transaction) -> bool:
            if not await transaction.rows(_SQL["holds"], {"holder": holder, "term": term}):
                return False
            await _write(transaction, changes)
            return True

        return await self._database.transact(job)

    async def alarms(self, limit: int, before: str | None) -> tuple[Sequence[Alarm], str | None]:
        return await self._page("alarms", limit, before, Alarm)

    async def notifications(self, limit: int, before: str | None) -> tuple[Sequence[Notification], str | None]:
        return await self._page("notifications", limit, before, Notification)

    async def _page(self, name: str, limit: int, before: str | None, kind: type[_T]) -> tuple[list[_T], str | None]:
        (newest,) = (_NEWEST,) if before is None else parse_cursor(before, MAX_ROW)
        rows = await self._database.read(_SQL[name], {"before": newest, "limit": limit + 1})
        found = [msgspec.json.decode(entry, type=kind) for _, entry in rows[:limit]]
        return found, str(rows[limit - 1][0]) if len(rows) > limit else None

    async def channel_states(self) -> Sequence[ChannelState]:
        rows = await self._database.read(_SQL["channel_states"])
        return [
            ChannelState(channel=channel, pending=pending, failed=failed, last_sent_at=sent, error=error)
            for channel, pending, failed, sent, error in rows
        ]

    async def tidy(self, kept: timedelta) -> None:
        for name in ("tidy_alarms", "tidy_notifications", "tidy_deliveries"):
            await self._database.write(_SQL[name], {"kept": kept}, is_repeatable=True)


async def _write(transaction: Transaction, changes: AlarmChanges) -> None:
    alarms = changes.alarms
    if alarms:
        values = {
            "ids": [alarm.id for alarm in alarms],
            "open": [alarm.is_open for alarm in alarms],
            "entries": [msgspec.json.encode(alarm).decode() for alarm in alarms],
        }
        await transaction.rows(_SQL["save_alarms"], values)
    if changes.dropped:
        await transaction.rows(_SQL["drop_alarms"], {"ids": list(changes.dropped)})
    for notification in changes.notifications:
        entry = msgspec.json.encode(notification).decode()
        await transaction.rows(
            _SQL["save_notification"], {"id": notification.id, "at": notification.at, "entry": entry}
        )
    for item in changes.deliveries:
        await transaction.rows(_SQL["save_delivery"], _columns(item))


def _columns(item: Delivery) -> dict[str, Any]:
    return {
        "notification": item.notification.id,
        "channel": item.channel,
        "state": item.state.value,
        "attempts": item.attempts,
        "due": item.due,
        "error": item.error,
    }


def _delivery(row: tuple[Any, ...]) -> Delivery:
    entry, channel, state, attempts, due, error = row
    return Delivery(
        notification=msgspec.json.decode(entry, type=Notification),
        channel=channel,
        state=DeliveryState(state),
        attempts=attempts,
        due=due,
        error=error,
    )
