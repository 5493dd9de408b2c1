"""DeadLetterStore in PostgreSQL."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from mqgate.adapters.postgres.database import Database, queries
from mqgate.adapters.postgres.text import escape, unescape
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.message import NO_PROPERTIES, Message, milliseconds
from mqgate.ports.dead_letters import DeadLetter

__all__ = ["PostgresDeadLetters"]

_SQL = queries(
    "dead_letters",
    "number, group_name, client, id, topic, queue, queue_offset, key, tag, properties, body, stored_at, "
    "deliveries, first_at, last_at, reason",
)
_BATCH = 2_000
# Longer than any redrive takes. Without it, waiting calls would pile up while a crashed machine holds the lock.
_LOCK_TIMEOUT = "70s"
_BEGIN_OF_TIME = datetime.min.replace(tzinfo=UTC)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class PostgresDeadLetters:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, letter: DeadLetter) -> None:
        await self._database.write(_SQL["record"], _columns(letter), is_repeatable=True)

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
        (number,) = (0,) if after is None else parse_cursor(after, MAX_ROW)
        values = {
            "group": group,
            "key": escape(key),
            "since": since or _BEGIN_OF_TIME,
            "until": until or _END_OF_TIME,
            "limit": limit + 1,
            "after": number,
        }
        rows = await self._database.read(_SQL["list" if key is None else "list_key"], values)
        return [_letter(row) for row in rows[:limit]], str(rows[limit - 1][0]) if len(rows) > limit else None

    async def get(self, group: str, message_id: str) -> Sequence[DeadLetter]:
        rows = await self._database.read(_SQL["get"], {"group": group, "id": escape(message_id)})
        return [_letter(row) for row in rows]

    async def remove(self, letters: Sequence[DeadLetter]) -> None:
        numbers = [letter.number for letter in letters]
        await self._database.write(_SQL["remove"], {"numbers": numbers}, is_repeatable=True)

    @asynccontextmanager
    async def redrive_lock(self, group: str) -> AsyncIterator[None]:
        """Hold an advisory lock, which ends with its connection. Raise if it is not free in time."""
        async with self._database.outside_pool() as connection:
            await connection.execute(_SQL["limit_waiting"], {"timeout": _LOCK_TIMEOUT})
            await connection.execute(_SQL["lock_group"], {"name": f"{self._database.schema} dead letters of {group}"})
            yield

    async def forget(self, group: str) -> None:
        values = {"group": group, "limit": _BATCH}
        while len(await self._database.write(_SQL["forget"], values, is_repeatable=True)) == _BATCH:
            pass


def _columns(letter: DeadLetter) -> dict[str, Any]:
    message = letter.message
    return {
        "group": letter.group,
        "client": letter.client,
        "id": message.id,
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "key": escape(message.key),
        "tag": escape(message.tag),
        "properties": msgspec.json.encode(message.properties).decode() if message.properties else None,
        "body": message.body,
        "stored_at": message.stored_at,
        "deliveries": letter.deliveries,
        "first_at": letter.first_at,
        "last_at": letter.last_at,
        "reason": escape(letter.reason),
    }


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    (number, group, client, message_id, topic, queue, offset, key, tag, properties, body, stored_at) = row[:12]
    deliveries, first_at, last_at, reason = row[12:]
    decoded = msgspec.json.decode(properties, type=dict[str, str]) if properties else NO_PROPERTIES
    return DeadLetter(
        group=group,
        client=client,
        message=Message(
            message_id, topic, queue, offset, body, unescape(key), unescape(tag), decoded, milliseconds(stored_at)
        ),
        deliveries=deliveries,
        first_at=first_at,
        last_at=last_at,
        reason=unescape(reason),
        number=number,
    )
