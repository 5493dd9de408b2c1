"""ApplicationStore in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from mqgate.adapters.postgres.database import Database, Transaction, queries
from mqgate.adapters.postgres.registry_store import record_audit
from mqgate.core.application import OPEN_STATES, Application, ApplicationState
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.errors import ApplicationChanged, DuplicateApplication
from mqgate.ports.registry_store import AuditEntry

__all__ = ["PostgresApplicationStore"]

_SQL = queries("application_store")
_decode = msgspec.json.Decoder(Application).decode


class PostgresApplicationStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, application: Application, audit_entry: AuditEntry) -> None:
        async def job(transaction: Transaction) -> None:
            if not await transaction.rows(_SQL["add"], _values(application)):
                raise DuplicateApplication("Wait for the decision on the other application, or withdraw it.")
            await record_audit(transaction, audit_entry)

        await self._database.transact(job)

    async def change(self, application: Application, audit_entry: AuditEntry | None) -> None:
        async def job(transaction: Transaction) -> None:
            if not await transaction.rows(_SQL["change"], _values(application)):
                raise ApplicationChanged(f"Application {application.id} was changed meanwhile. Read it again.")
            if audit_entry is not None:
                await record_audit(transaction, audit_entry)

        await self._database.transact(job)

    async def get(self, application_id: str) -> Application | None:
        rows = await self._database.read(_SQL["get"], {"id": application_id})
        return _decode(rows[0][0]) if rows else None

    async def list(
        self, *, state: ApplicationState | None, applicant: str | None, limit: int, after: str | None
    ) -> tuple[Sequence[Application], str | None]:
        (before,) = (1 << 62,) if after is None else parse_cursor(after, MAX_ROW)
        values = {"before": before, "state": state, "applicant": applicant, "most": limit + 1}
        rows = await self._database.read(_SQL["list"], values)
        return [_decode(body) for _, body in rows[:limit]], str(rows[limit - 1][0]) if len(rows) > limit else None

    async def due(self, now: datetime, limit: int) -> Sequence[Application]:
        return [_decode(body) for (body,) in await self._database.read(_SQL["due"], {"at": now, "most": limit})]


def _values(application: Application) -> dict[str, Any]:
    is_open = application.state in OPEN_STATES
    return {
        "id": application.id,
        "version": application.version,
        "state": str(application.state),
        "subject": f"{application.kind} {application.entry} {application.name}" if is_open else None,
        "applicant": application.applicant,
        "next_at": application.next_attempt_at,
        "body": msgspec.json.encode(application).decode(),
    }
