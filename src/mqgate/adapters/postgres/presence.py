"""Heartbeat: every gateway updates its row once a second, and counts as gone when the row is older than `lease`.

Claims of a gateway (timers, idempotency keys) name their owner and are taken over only after the owner is gone. If the
owner was only slow, both gateways may send the same message, under the same id. The same can happen if the PostgreSQL
clock jumps by more than the lease: all gateways then look gone until their next heartbeat.
"""

import asyncio
import contextlib
import os
import socket
from datetime import timedelta
from uuid import UUID, uuid4

import structlog

from mqgate.adapters.postgres.clock import ServerClock
from mqgate.adapters.postgres.database import Database, queries
from mqgate.background import Background
from mqgate.core.errors import MqgateError

__all__ = ["Presence"]

_SQL = queries("presence")
_RETENTION = timedelta(hours=1)
_log = structlog.get_logger()


class Presence:
    """Owner id of a gateway and its heartbeat, which also samples the server time for `clock`."""

    def __init__(
        self,
        database: Database,
        *,
        name: str | None = None,
        lease: timedelta = timedelta(seconds=5),
        interval: timedelta = timedelta(seconds=1),
        clock: ServerClock | None = None,
    ) -> None:
        self.owner: UUID = uuid4()
        self.clock = clock or ServerClock()
        self._database = database
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._lease = lease
        self._interval = interval
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        """Delete the row, so that others can take over unfinished claims at once. Safe to call twice."""
        await self._background.stop()
        with contextlib.suppress(MqgateError):
            await self._database.write(_SQL["leave"], {"owner": self.owner}, is_repeatable=True)

    async def run_once(self) -> None:
        """Send one heartbeat. Must succeed once before the owner claims anything."""
        sent = self.clock.steady()
        values = {"owner": self.owner, "name": self._name, "lease": self._lease}
        rows = await self._database.write(_SQL["beat"], values, is_repeatable=True)
        self.clock.add_sample(rows[0][0], sent)

    async def tidy(self) -> None:
        """Delete rows of gateways that have been gone for an hour. Without a row a gateway counts as gone too."""
        await self._database.write(_SQL["forget"], {"kept": _RETENTION}, is_repeatable=True)

    async def _loop(self) -> None:
        is_healthy = True
        while True:
            await asyncio.sleep(self._interval.total_seconds())
            try:
                await self.run_once()
            except MqgateError as error:
                if is_healthy:
                    _log.warning("heartbeat failed", error=error.detail)
                is_healthy = False
            else:
                is_healthy = True
