"""The table of messages that a consumer has processed."""

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any
from uuid import uuid4

from mqgate.client.database import Statements, check_table, transaction
from mqgate.client.delivery import Message, Retry
from mqgate.client.requests import seconds

__all__ = ["Processed", "create_statements"]

_STATEMENTS = Statements("mqgate.client.idempotent")
_log = logging.getLogger(__name__)


def create_statements(dialect: str) -> list[str]:
    """Return the statements that create the table, for `op.execute` of an Alembic migration."""
    return [_STATEMENTS.text("create", dialect)]


class Processed:
    """Records of one consumer, by message id, which is the same for all copies and deliveries of a message.

    `target` is a session or connection of SQLAlchemy, or a DB-API connection.
    """

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer

    def create_table(self, target: Any) -> None:
        """Create the table if it is missing."""
        _STATEMENTS.execute(target, "create")

    def mark_done(self, target: Any, message_id: str) -> bool:
        """Record a message in the transaction of its work. Return False if it was processed before: skip the work.

        Nothing is committed here. On PostgreSQL, a second transaction for the same message waits for the first one.
        """
        return bool(_STATEMENTS.execute(target, "mark_done", **self._row(message_id), token=uuid4().hex))

    def guard(
        self, connect: Callable[[], Any], *, lease: float | timedelta
    ) -> Callable[[Callable[[Message], Any]], Callable[[Message], None]]:
        """Return the decorator of a handler function that calls it for messages that are not done.

        `connect` returns a new DB-API connection. `lease` must be longer than the handler takes: after it, another
        delivery begins the work again. A message that another process is working on is retried when that lease ends.
        Raise DatabaseUnusable if the table is missing.
        """
        check_table(
            connect, _STATEMENTS, "the table mqgate_processed cannot be read; create it with Processed.create_table"
        )

        def decorate(handler: Callable[[Message], Any]) -> Callable[[Message], None]:
            @wraps(handler)
            def handle(message: Message) -> None:
                token = self._begin(connect, message.id, seconds(lease))
                if token is None:
                    return
                try:
                    handler(message)
                except BaseException:
                    with transaction(connect) as connection:
                        _STATEMENTS.execute(connection, "abandon", **self._row(message.id), token=token)
                    raise
                self._finish(connect, message.id, token)

            return handle

        return decorate

    def clean(self, target: Any, keep: timedelta) -> int:
        """Delete records of messages that were done longer ago than `keep`, and return their number.

        Keep them for longer than any copy of a message can arrive: retention, redrives and replays included.
        """
        return len(_STATEMENTS.execute(target, "clean", keep=keep.total_seconds()))

    def _begin(self, connect: Callable[[], Any], message_id: str, lease: float) -> str | None:
        """Return the token of a new claim, or None if the message is done. Raise Retry if another process has it."""
        token = uuid4().hex
        row = self._row(message_id)
        with transaction(connect) as connection:
            if _STATEMENTS.execute(connection, "begin", **row, token=token, lease=lease):
                return token
            state = _STATEMENTS.execute(connection, "state", **row)
        if state and state[0][0]:
            return None
        left = float(state[0][1]) if state else 0.0
        raise Retry("another process is working on this message", delay=max(left, 0.0))

    def _finish(self, connect: Callable[[], Any], message_id: str, token: str) -> None:
        with transaction(connect) as connection:
            is_recorded = _STATEMENTS.execute(connection, "finish", **self._row(message_id), token=token)
        if not is_recorded:
            _log.warning("work took longer than its lease and may have been repeated: id=%s; raise lease", message_id)

    def _row(self, message_id: str) -> dict[str, str]:
        return {"consumer": self._consumer, "message_id": message_id}
