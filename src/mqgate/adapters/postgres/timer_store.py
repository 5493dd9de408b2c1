"""Timers in PostgreSQL: any gateway may claim what is due, and one does.

    scheduled --claim (SKIP LOCKED)--> claimed by an owner --finish--> delivered
        ^------------release-----------'   '--its owner is gone--> claimed by whoever asks for what is unfinished

- A claim has no deadline of its own; it is its owner's as long as that one is alive (see `presence`). Only what an
  owner that is gone left behind, and what is our own, is handed out as unfinished, to one gateway. That one looks in
  the log first. So a message goes twice into the log, under the same id, only if its owner is not gone but was cut off
  from PostgreSQL, or stood still, for longer than its lease; or if the log did not yet show what it had stored.
- Cancel, re-time and claim lock the row: one wins, and what the others find says who.
- What was dispatched is delivered, also if the claim was lost meanwhile; let go of can only be what is still ours.
- What failed stays as due as it was, but stands behind what has not been tried yet, and the longest ago comes first
  among its like: a dead broker's timers, however many, keep nobody else's waiting.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from mqgate.adapters.postgres.database import Database, queries
from mqgate.adapters.postgres.gathering import Gathering
from mqgate.adapters.postgres.presence import Presence
from mqgate.adapters.postgres.text import kept, told
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.message import NO_PROPERTIES, Draft
from mqgate.ports.timer_store import Timer, TimerState

__all__ = ["Outlook", "PostgresTimerStore"]

_SQL = queries("timer_store", "number, id, topic, due, state, key, tag, properties, slot, body")
_KEPT = timedelta(minutes=20)
_AT_ONCE = 2_000
_BEGIN_OF_TIME = datetime.min.replace(tzinfo=UTC)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST_MICROSECOND = (_END_OF_TIME - _EPOCH) // _MICROSECOND
# Another gateway is just claiming what we see due.
_LOOK_AGAIN = timedelta(milliseconds=50)


class Outlook(NamedTuple):
    """What other gateways left to do: when something is due, and whether an owner that is gone left something."""

    now: datetime
    due: datetime | None
    is_abandoned: bool


class PostgresTimerStore:
    def __init__(self, database: Database, presence: Presence) -> None:
        self._database = database
        self._owner = presence.owner
        self._added = Gathering(self._add, database.spawn)

    async def add(self, timers: Sequence[Timer]) -> None:
        await self._added.ask(timers)

    async def _add(self, timers: Sequence[Timer]) -> Sequence[None]:
        drafts = [timer.draft for timer in timers]
        values = {
            "ids": [draft.id for draft in drafts],
            "topics": [timer.topic for timer in timers],
            "dues": [timer.due for timer in timers],
            "keys": [kept(draft.key) for draft in drafts],
            "tags": [kept(draft.tag) for draft in drafts],
            "properties": [_json(draft) for draft in drafts],
            "slots": [draft.slot for draft in drafts],
            "bodies": [draft.body for draft in drafts],
        }
        await self._database.write(_SQL["add"], values)
        return [None] * len(timers)

    async def claim(self, limit: int) -> tuple[Sequence[Timer], datetime | None]:
        rows = await self._database.write(_SQL["claim"], {"most": limit, "owner": self._owner})
        timers = sorted((_timer(row) for row in rows), key=lambda each: (each.due, each.number))
        now, due, _ = await self.outlook()
        if due is not None and due <= now and not timers:
            due = now + _LOOK_AGAIN
        return timers, due

    async def outlook(self) -> Outlook:
        """What there is to do for anybody."""
        rows = await self._database.read(_SQL["outlook"])
        return Outlook(*rows[0])

    async def unfinished(self) -> Sequence[Timer]:
        """What an owner that is gone had claimed, which is ours now, and what we had claimed ourselves."""
        # Done twice, it finds the same: by then they are our own.
        rows = await self._database.write(_SQL["unfinished"], {"owner": self._owner}, is_repeatable=True)
        return sorted((_timer(row) for row in rows), key=lambda each: each.number)

    async def finish(self, timers: Sequence[Timer]) -> None:
        await self._database.write(_SQL["finish"], {"numbers": _numbers(timers)}, is_repeatable=True)

    async def release(self, timers: Sequence[Timer]) -> None:
        values = {"numbers": _numbers(timers), "owner": self._owner}
        await self._database.write(_SQL["release"], values, is_repeatable=True)

    async def cancel_all(self, topic: str) -> None:
        for name in ("cancel_scheduled", "cancel_claimed"):
            await self._until_none(name, {"topic": topic})

    async def get(self, message_id: str) -> Timer | None:
        rows = await self._database.read(_SQL["get"], {"id": kept(message_id)})
        return _timer(rows[0]) if rows else None

    async def list(
        self,
        *,
        topic: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        after: str | None,
    ) -> tuple[Sequence[Timer], str | None]:
        due, number = (None, 0) if after is None else parse_cursor(after, _LATEST_MICROSECOND, MAX_ROW)
        values = {
            "topic": kept(topic),
            "since": since or _BEGIN_OF_TIME,
            "until": until or _END_OF_TIME,
            "due": _BEGIN_OF_TIME if due is None else _EPOCH + due * _MICROSECOND,
            "number": number,
            "most": limit + 1,
        }
        rows = await self._database.read(_SQL["list" if topic is None else "list_topic"], values)
        last = rows[limit - 1] if len(rows) > limit else None
        return [
            _timer(row) for row in rows[:limit]
        ], f"{(last[3] - _EPOCH) // _MICROSECOND}.{last[0]}" if last else None

    async def change(self, message_id: str, due: datetime | None) -> TimerState | None:
        name = "cancel" if due is None else "retime"
        rows = await self._database.write(_SQL[name], {"id": kept(message_id), "due": due})
        return TimerState(rows[0][0]) if rows else None

    async def tidy(self) -> None:
        """Forget timers that were delivered or cancelled a while ago."""
        await self._until_none("forget", {"kept": _KEPT})

    async def _until_none(self, name: str, values: dict[str, Any]) -> None:
        while len(await self._database.write(_SQL[name], {**values, "most": _AT_ONCE}, is_repeatable=True)) == _AT_ONCE:
            pass


def _numbers(timers: Sequence[Timer]) -> list[int]:
    return [timer.number for timer in timers]


def _json(draft: Draft) -> str | None:
    return msgspec.json.encode(draft.properties).decode() if draft.properties else None


def _timer(row: tuple[Any, ...]) -> Timer:
    number, message_id, topic, due, state, key, tag, properties, slot, body = row
    decoded = msgspec.json.decode(properties, type=dict[str, str]) if properties else NO_PROPERTIES
    draft = Draft(message_id, body or b"", told(key), told(tag), decoded, slot)
    return Timer(topic, draft, due, TimerState(state), number)
