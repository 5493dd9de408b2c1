"""Watches the registry for changes of other gateways, with LISTEN on a connection of its own.

Notifications are lost with the connection, so the registry is also checked after every reconnect and every two
seconds: a dead connection may not be detected, and a deleted key must not work for more than 5 s.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from mqgate.adapters.postgres.database import Database
from mqgate.background import Background
from mqgate.core.errors import MqgateError

__all__ = ["RegistryWatch"]

_PAUSE = 1.0
_log = structlog.get_logger()


class RegistryWatch:
    """Background watch. `refresh` is awaited after a change. The channel has the name of the schema."""

    def __init__(
        self,
        database: Database,
        refresh: Callable[[], Awaitable[None]],
        *,
        interval: timedelta = timedelta(seconds=2),
    ) -> None:
        self._database = database
        self._refresh = refresh
        self._interval = interval
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    async def run_once(self) -> None:
        try:
            await self._refresh()
        except MqgateError as error:
            _log.debug("registry refresh failed", error=error.detail)

    async def _loop(self) -> None:
        while True:
            try:
                await self._listen()
            except MqgateError as error:
                _log.debug("registry notifications lost", error=error.detail)
            await asyncio.sleep(_PAUSE)
            await self.run_once()

    async def _listen(self) -> None:
        async with self._database.outside_pool() as connection:
            await connection.execute(f'LISTEN "{self._database.schema}"'.encode())
            while True:
                await self.run_once()
                # Ends with the first notification, including one that is already pending, or after the interval.
                async for _ in connection.notifies(timeout=self._interval.total_seconds(), stop_after=1):
                    pass
