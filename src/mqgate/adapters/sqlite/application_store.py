"""ApplicationStore on the embedded engine."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.registry_store import record_audit
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.application import OPEN_STATES, Application, ApplicationState
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.errors import ApplicationChanged, DuplicateApplication
from mqgate.core.message import milliseconds
from mqgate.ports.registry_store import AuditEntry

__all__ = ["SqliteApplicationStore"]

_SQL = queries("application_store")
_decode = msgspec.json.Decoder(Application).decode


class SqliteApplicationStore:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, application: Application, audit_entry: AuditEntry) -> None:
        row = _row(application)

        def job(tx: Transaction) -> None:
            if tx.one(_SQL["add"], row) is None:
                raise DuplicateApplication("Wait for the decision on the other application, or withdraw it.")
            record_audit(tx, audit_entry)

        await self._engine.write(job)

    async def change(self, application: Application, audit_entry: AuditEntry | None) -> None:
        row = _row(application)

        def job(tx: Transaction) -> None:
            if tx.one(_SQL["change"], row) is None:
                raise ApplicationChanged(f"Application {application.id} was changed meanwhile. Read it again.")
            if audit_entry is not None:
                record_audit(tx, audit_entry)

        await self._engine.write(job)

    async def get(self, application_id: str) -> Application | None:
        row = await self._engine.read(lambda view: view.one(_SQL["get"], (application_id,)))
        return None if row is None else _decode(row[0])

    async def list(
        self, *, state: ApplicationState | None, applicant: str | None, limit: int, after: str | None
    ) -> tuple[Sequence[Application], str | None]:
        (before,) = (1 << 62,) if after is None else parse_cursor(after, MAX_ROW)
        values = (before, state, applicant, limit + 1)
        rows = await self._engine.read(lambda view: view.all(_SQL["list"], values))
        return [_decode(body) for _, body in rows[:limit]], str(rows[limit - 1][0]) if len(rows) > limit else None

    async def due(self, now: datetime, limit: int) -> Sequence[Application]:
        rows = await self._engine.read(lambda view: view.all(_SQL["due"], (milliseconds(now), limit)))
        return [_decode(body) for (body,) in rows]


def _row(application: Application) -> tuple[Any, ...]:
    is_open = application.state in OPEN_STATES
    return (
        application.id,
        application.version,
        str(application.state),
        f"{application.kind} {application.entry} {application.name}" if is_open else None,
        application.applicant,
        None if application.next_attempt_at is None else milliseconds(application.next_attempt_at),
        msgspec.json.encode(application),
    )
