"""Dead letters in SQLite."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.message import NO_PROPERTIES, Message, instant, milliseconds
from mqgate.ports.dead_letters import DeadLetter

_COLUMNS = (
    "number, group_name, client, id, topic, queue, offset, key, tag, properties, body, stored_at, "
    "deliveries, first_at, last_at, reason"
)
_SQL = {name: sql.replace("{columns}", _COLUMNS) for name, sql in queries("dead_letters").items()}
_MAX_TIME = 1 << 62


class SqliteDeadLetters:
    """DeadLetterStore on the embedded engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._locks: dict[str, asyncio.Lock] = {}

    async def record(self, letter: DeadLetter) -> None:
        message = letter.message
        values = (
            letter.group,
            letter.client,
            message.id,
            message.topic,
            message.queue,
            message.offset,
            message.key,
            message.tag,
            msgspec.json.encode(message.properties).decode() if message.properties else None,
            message.body,
            message.stored_ms,
            letter.deliveries,
            milliseconds(letter.first_at),
            milliseconds(letter.last_at),
            letter.reason,
        )

        def job(tx: Transaction) -> None:
            tx.execute(_SQL["record"], values)

        await self._engine.write(job)

    async def list(
        self,
        group: str,
        *,
        key: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        after: str | None,
    ) -> tuple[Sequence[DeadLetter], str | None]:
        low = milliseconds(since) if since else 0
        high = milliseconds(until) if until else _MAX_TIME
        (number,) = (0,) if after is None else parse_cursor(after, MAX_ROW)
        values = (group, number, key, low, high, limit + 1)
        rows = await self._engine.read(lambda view: view.all(_SQL["list"], values))
        return [_dead_letter(row) for row in rows[:limit]], str(rows[limit - 1][0]) if len(rows) > limit else None

    async def get(self, group: str, message_id: str) -> Sequence[DeadLetter]:
        rows = await self._engine.read(lambda view: view.all(_SQL["get"], (group, message_id)))
        return [_dead_letter(row) for row in rows]

    async def remove(self, letters: Sequence[DeadLetter]) -> None:
        def job(tx: Transaction) -> None:
            for letter in letters:
                tx.execute(_SQL["remove"], (letter.number,))

        await self._engine.write(job)

    def redrive_lock(self, group: str) -> asyncio.Lock:
        # One process serves the data directory, so a lock in memory is sufficient.
        return self._locks.setdefault(group, asyncio.Lock())

    async def forget(self, group: str) -> None:
        def job(tx: Transaction) -> None:
            tx.execute(_SQL["forget"], (group,))

        await self._engine.write(job)


def _dead_letter(row: Any) -> DeadLetter:
    (number, group, client, message_id, topic, queue, offset, key, tag, properties, body, stored_at) = row[:12]
    deliveries, first_at, last_at, reason = row[12:]
    decoded = msgspec.json.decode(properties, type=dict[str, str]) if properties else NO_PROPERTIES
    return DeadLetter(
        group=group,
        client=client,
        message=Message(message_id, topic, queue, offset, body, key, tag, decoded, stored_at),
        deliveries=deliveries,
        first_at=instant(first_at),
        last_at=instant(last_at),
        reason=reason,
        number=number,
    )
