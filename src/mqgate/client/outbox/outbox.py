"""The table of messages that are to be published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from mqgate.client.database import Statements
from mqgate.client.message import envelope
from mqgate.client.requests import Duration, Instant, encode
from mqgate.client.tracing import trace_properties

__all__ = ["STATEMENTS", "Outbox", "RefusedRow", "create_statements"]

STATEMENTS = Statements("mqgate.client.outbox")


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the gateway refused. It blocks the later rows of its key, and no others."""

    number: int
    id: str
    topic: str
    key: str | None
    reason: str


def create_statements(dialect: str) -> list[str]:
    """Return the statements that create the table, for `op.execute` of an Alembic migration."""
    return [STATEMENTS.text(name, dialect) for name in ("create", "create_index")]


class Outbox:
    """Adds messages to a transaction. `target` is a session or connection of SQLAlchemy, or a DB-API connection.

    Nothing is committed here.
    """

    def create_table(self, target: Any) -> None:
        """Create the table if it is missing."""
        STATEMENTS.execute(target, "create")
        STATEMENTS.execute(target, "create_index")

    def add(
        self,
        target: Any,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
    ) -> str:
        """Add a message, and return its id, which is its idempotency key. `delay` begins when a relay publishes it."""
        row_id = uuid4().hex
        content = envelope(
            body,
            key=key,
            tag=tag,
            properties={**trace_properties(), **(properties or {})},
            delay=delay,
            deliver_at=deliver_at,
            idempotency_key=row_id,
        )
        text = encode(content).decode()
        STATEMENTS.execute(target, "add", id=row_id, topic=topic, message_key=key, envelope=text)
        return row_id

    def refused(self, target: Any) -> list[RefusedRow]:
        """Return the rows that the gateway refused, oldest first."""
        return [RefusedRow(*row) for row in STATEMENTS.execute(target, "refused")]

    def retry(self, target: Any) -> None:
        """Let relays publish the refused rows again, after their cause was removed."""
        STATEMENTS.execute(target, "retry")
