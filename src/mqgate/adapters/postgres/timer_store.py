"""TimerStore in PostgreSQL: every due timer is claimed by exactly one gateway.

    scheduled --claim (SKIP LOCKED)--> claimed by an owner --finish--> delivered
        ^------------release-----------'   '--the owner is gone--> claimed by the gateway that calls `unfinished`

- A claim has no deadline of its own: it is valid while its owner is alive (see `presence`). `unfinished` returns only
  claims of owners that are gone, and the gateway's own; the caller searches the log for them first. So a message is
  stored twice, under the same id, only if its owner was cut off from PostgreSQL or suspended for longer than its
  lease, or if the log did not yet show the stored message.
- Cancel, re-time and claim lock the row: one wins, and the others see the new state.
- `finish` applies even if the claim was taken over meanwhile. `release` applies only to claims of the caller.
- A timer whose dispatch failed keeps its due time but sorts after timers that were not tried yet, and the one that
  failed longest ago comes first. So timers of an unavailable broker do not delay others.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from mqgate.adapters.postgres.database import Database, queries
from mqgate.adapters.postgres.presence import Presence
from mqgate.adapters.postgres.statement_batcher import StatementBatcher
from mqgate.adapters.postgres.text import escape, unescape
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.message import NO_PROPERTIES, Draft
from mqgate.ports.timer_store import Timer, TimerState

__all__ = ["Outlook", "PostgresTimerStore"]

_SQL = queries("timer_store", "number, id, topic, due, state, key, tag, properties, slot, body, producer")
_RETENTION = timedelta(minutes=20)
_BATCH = 2_000
_BEGIN_OF_TIME = datetime.min.replace(tzinfo=UTC)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST_MICROSECOND = (_END_OF_TIME - _EPOCH) // _MICROSECOND
# A due timer that could not be claimed is being claimed by another gateway: check again after this time.
_RECHECK = timedelta(milliseconds=50)


class Outlook(NamedTuple):
    """Next due time of all timers, and whether an owner that is gone left claims."""

    now: datetime
    due: datetime | None
    is_abandoned: bool


class PostgresTimerStore:
    def __init__(self, database: Database, presence: Presence) -> None:
        self._database = database
        self._owner = presence.owner
        self._additions = StatementBatcher(self._add, database.spawn)

    async def add(self, timers: Sequence[Timer]) -> None:
        await self._additions.submit(timers)

    async def _add(self, timers: Sequence[Timer]) -> Sequence[None]:
        drafts = [timer.draft for timer in timers]
        values = {
            "ids": [draft.id for draft in drafts],
            "topics": [timer.topic for timer in timers],
            "dues": [timer.due for timer in timers],
            "keys": [escape(draft.key) for draft in drafts],
            "tags": [escape(draft.tag) for draft in drafts],
            "properties": [_json(draft) for draft in drafts],
            "slots": [draft.slot for draft in drafts],
            "producers": [timer.producer for timer in timers],
            "bodies": [draft.body for draft in drafts],
        }
        await self._database.write(_SQL["add"], values)
        return [None] * len(timers)

    async def claim(self, limit: int) -> tuple[Sequence[Timer], datetime | None]:
        rows = await self._database.write(_SQL["claim"], {"limit": limit, "owner": self._owner})
        timers = sorted((_timer(row) for row in rows), key=lambda timer: (timer.due, timer.number))
        now, due, _ = await self.outlook()
        if due is not None and due <= now and not timers:
            due = now + _RECHECK
        return timers, due

    async def outlook(self) -> Outlook:
        """Return the next due time, and whether there are abandoned claims."""
        rows = await self._database.read(_SQL["outlook"])
        return Outlook(*rows[0])

    async def unfinished(self) -> Sequence[Timer]:
        """Claim and return timers of owners that are gone, together with the claims of this gateway."""
        # Repeatable: the second execution returns the timers as claims of this gateway.
        rows = await self._database.write(_SQL["unfinished"], {"owner": self._owner}, is_repeatable=True)
        return sorted((_timer(row) for row in rows), key=lambda timer: timer.number)

    async def finish(self, timers: Sequence[Timer]) -> None:
        await self._database.write(_SQL["finish"], {"numbers": _numbers(timers)}, is_repeatable=True)

    async def release(self, timers: Sequence[Timer]) -> None:
        values = {"numbers": _numbers(timers), "owner": self._owner}
        await self._database.write(_SQL["release"], values, is_repeatable=True)

    async def cancel_all(self, topic: str) -> None:
        for name in ("cancel_scheduled", "cancel_claimed"):
            await self._repeat_until_empty(name, {"topic": topic})

    async def get(self, message_id: str) -> Timer | None:
        rows = await self._database.read(_SQL["get"], {"id": escape(message_id)})
        return _timer(rows[0]) if rows else None

    async def list(
        self,
        *,
        topic: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        after: str | None,
        producer: str | None = None,
    ) -> tuple[Sequence[Timer], str | None]:
        due, number = (None, 0) if after is None else parse_cursor(after, _LATEST_MICROSECOND, MAX_ROW)
        values = {
            "topic": escape(topic),
            "producer": escape(producer),
            "since": since or _BEGIN_OF_TIME,
            "until": until or _END_OF_TIME,
            "due": _BEGIN_OF_TIME if due is None else _EPOCH + due * _MICROSECOND,
            "number": number,
            "limit": limit + 1,
        }
        name = "list_producer" if producer is not None else "list" if topic is None else "list_topic"
        rows = await self._database.read(_SQL[name], values)
        last = rows[limit - 1] if len(rows) > limit else None
        return [
            _timer(row) for row in rows[:limit]
        ], f"{(last[3] - _EPOCH) // _MICROSECOND}.{last[0]}" if last else None

    async def change(self, message_id: str, due: datetime | None) -> TimerState | None:
        name = "cancel" if due is None else "retime"
        rows = await self._database.write(_SQL[name], {"id": escape(message_id), "due": due})
        return TimerState(rows[0][0]) if rows else None

    async def tidy(self) -> None:
        """Delete timers that were delivered or cancelled more than 20 minutes ago."""
        await self._repeat_until_empty("forget", {"kept": _RETENTION})

    async def _repeat_until_empty(self, name: str, values: dict[str, Any]) -> None:
        while len(await self._database.write(_SQL[name], {**values, "limit": _BATCH}, is_repeatable=True)) == _BATCH:
            pass


def _numbers(timers: Sequence[Timer]) -> list[int]:
    return [timer.number for timer in timers]


def _json(draft: Draft) -> str | None:
    return msgspec.json.encode(draft.properties).decode() if draft.properties else None


def _timer(row: tuple[Any, ...]) -> Timer:
    number, message_id, topic, due, state, key, tag, properties, slot, body, producer = row
    decoded = msgspec.json.decode(properties, type=dict[str, str]) if properties else NO_PROPERTIES
    draft = Draft(message_id, body or b"", unescape(key), unescape(tag), decoded, slot)
    return Timer(topic, draft, due, TimerState(state), number, producer)
