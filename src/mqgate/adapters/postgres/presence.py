"""Who is alive: every gateway writes its row once a second, and counts as gone `lease` after it was last seen.

What a gateway holds (claimed timers, keys under which it publishes) names its owner, and is taken over when that owner
is gone: never by whoever merely starts. An owner that is not gone, only slow, may meet what was taken over: both send
it then, under the same id. A clock of PostgreSQL's that jumps, forth or back, by more than the lease makes everybody
look gone until the next second: at worst the same.
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
_KEPT = timedelta(hours=1)
_log = structlog.get_logger()


class Presence:
    """One owner, and its heartbeat; `clock` learns the server's time from it."""

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
        """Say goodbye: what is left unfinished is anybody's at once. Safe to call twice."""
        await self._background.stop()
        with contextlib.suppress(MqgateError):
            await self._database.write(_SQL["leave"], {"owner": self.owner}, is_repeatable=True)

    async def run_once(self) -> None:
        """Be seen. To be called once before anything is claimed in this owner's name."""
        asked = self.clock.steady()
        values = {"owner": self.owner, "name": self._name, "lease": self._lease}
        rows = await self._database.write(_SQL["beat"], values, is_repeatable=True)
        self.clock.learn(rows[0][0], asked)

    async def tidy(self) -> None:
        """Forget gateways that are long gone; without a row they count as gone all the same."""
        await self._database.write(_SQL["forget"], {"kept": _KEPT}, is_repeatable=True)

    async def _loop(self) -> None:
        is_well = True
        while True:
            await asyncio.sleep(self._interval.total_seconds())
            try:
                await self.run_once()
            except MqgateError as error:
                if is_well:
                    _log.warning("heartbeat failed", error=error.detail)
                is_well = False
            else:
                is_well = True
