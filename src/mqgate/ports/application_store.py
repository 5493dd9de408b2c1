"""Storage of applications. Each change carries its audit entry, and both are committed together."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from mqgate.core.application import Application, ApplicationState
from mqgate.ports.registry_store import AuditEntry

__all__ = ["ApplicationStore"]


class ApplicationStore(Protocol):
    async def add(self, application: Application, audit_entry: AuditEntry) -> None:
        """Store a new application. Raise DuplicateApplication if one of this kind is open for the same entry."""

    async def change(self, application: Application, audit_entry: AuditEntry | None) -> None:
        """Replace the application of the previous version. Raise ApplicationChanged if it has another version."""

    async def get(self, application_id: str) -> Application | None:
        """Return an application, or None."""

    async def list(
        self, *, state: ApplicationState | None, applicant: str | None, limit: int, after: str | None
    ) -> tuple[Sequence[Application], str | None]:
        """Return applications, the newest first, and the next cursor (None: no more).

        Raises InvalidValue if `after` is not a valid cursor.
        """

    async def due(self, now: datetime, limit: int) -> Sequence[Application]:
        """Return approved applications whose next attempt is due."""
