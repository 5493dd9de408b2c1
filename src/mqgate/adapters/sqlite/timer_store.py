"""Timers in SQLite. Each timer is one row, and an index on the due time finds the next one."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.message import NO_PROPERTIES, Draft, instant, milliseconds
from mqgate.core.times import LATEST_MS
from mqgate.ports.timer_store import Timer, TimerState

_COLUMNS = "number, id, topic, due, state, key, tag, properties, slot, body, producer"
_SQL = {name: sql.replace("{columns}", _COLUMNS) for name, sql in queries("timer_store").items()}
_REMEMBERED = timedelta(minutes=20)
_TIDY_ROWS = 2_000
_MAX_TIME = 1 << 62


class SqliteTimerStore:
    """TimerStore on the embedded engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, timers: Sequence[Timer]) -> None:
        rows = [_row(timer) for timer in timers]

        def job(tx: Transaction) -> None:
            for row in rows:
                tx.execute(_SQL["add"], row)

        await self._engine.write(job)

    async def claim(self, limit: int) -> tuple[Sequence[Timer], datetime | None]:
        def next_due(view: View) -> int | None:
            found: int | None = view.one(_SQL["next_due"])[0]
            return found

        # Usually nothing is due: read before using the writing thread.
        due = await self._engine.read(next_due)
        if due is None or due > self._engine.clock.now_ms():
            return (), None if due is None else instant(due)

        def job(tx: Transaction) -> tuple[list[Any], int | None]:
            rows = tx.all(_SQL["claim"], (tx.now_ms, limit))
            return rows, tx.one(_SQL["next_due"])[0]

        rows, following = await self._engine.write(job)
        timers = sorted((_timer(row) for row in rows), key=lambda timer: (timer.due, timer.number))
        return timers, None if following is None else instant(following)

    async def unfinished(self) -> Sequence[Timer]:
        return [_timer(row) for row in await self._engine.read(lambda view: view.all(_SQL["unfinished"]))]

    async def finish(self, timers: Sequence[Timer]) -> None:
        def job(tx: Transaction) -> None:
            for timer in timers:
                tx.execute(_SQL["finish"], (tx.now_ms, timer.number))

        await self._engine.write(job)

    async def release(self, timers: Sequence[Timer]) -> None:
        def job(tx: Transaction) -> None:
            for timer in timers:
                tx.execute(_SQL["release"], (timer.number,))

        await self._engine.write(job)

    async def cancel_all(self, topic: str) -> None:
        def job(tx: Transaction) -> None:
            tx.execute(_SQL["cancel_all"], (tx.now_ms, topic))

        await self._engine.write(job)

    async def get(self, message_id: str) -> Timer | None:
        row = await self._engine.read(lambda view: view.one(_SQL["get"], (message_id,)))
        return None if row is None else _timer(row)

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
        due, number = (-1, 0) if after is None else parse_cursor(after, LATEST_MS, MAX_ROW)
        low = milliseconds(since) if since else 0
        high = milliseconds(until) if until else _MAX_TIME
        values = (topic, low, high, due, number, limit + 1, producer)
        rows = await self._engine.read(lambda view: view.all(_SQL["list"], values))
        last = rows[limit - 1] if len(rows) > limit else None
        return [_timer(row) for row in rows[:limit]], f"{last[3]}.{last[0]}" if last else None

    async def change(self, message_id: str, due: datetime | None) -> TimerState | None:
        def job(tx: Transaction) -> TimerState | None:
            found = tx.one(_SQL["state"], (message_id,))
            if found is None:
                return None
            number, state = found
            if state == TimerState.SCHEDULED:
                if due is None:
                    tx.execute(_SQL["cancel"], (tx.now_ms, number))
                else:
                    tx.execute(_SQL["retime"], (_due_ms(due), number))
            return TimerState(state)

        return await self._engine.write(job)

    async def tidy(self) -> None:
        """Delete timers that were delivered or cancelled at least 20 minutes ago."""

        def job(tx: Transaction) -> int:
            tx.execute(_SQL["forget"], (tx.now_ms - _REMEMBERED // timedelta(milliseconds=1), _TIDY_ROWS))
            return int(tx.one("SELECT changes()")[0])

        while await self._engine.write(job):
            pass


def _row(timer: Timer) -> tuple[Any, ...]:
    draft = timer.draft
    properties = msgspec.json.encode(draft.properties).decode() if draft.properties else None
    values = draft.id, timer.topic, _due_ms(timer.due), draft.key, draft.tag, properties, draft.slot, draft.body
    return *values, timer.producer


def _due_ms(due: datetime) -> int:
    """Return a due time in milliseconds, rounded up, so that no message is early."""
    rounded_down = milliseconds(due)
    return rounded_down if instant(rounded_down) == due else rounded_down + 1


def _timer(row: Any) -> Timer:
    number, message_id, topic, due, state, key, tag, properties, slot, body, producer = row
    decoded = msgspec.json.decode(properties, type=dict[str, str]) if properties else NO_PROPERTIES
    draft = Draft(message_id, body or b"", key, tag, decoded, slot)
    return Timer(topic, draft, instant(due), TimerState(state), number, producer)
