"""Hears of changes that other gateways make to the registry, over a connection of its own (LISTEN).

A notice may be lost with the connection, so it looks whenever it has connected anew; and every few seconds in any case,
for a connection may be dead without a sign.
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
    """`look` is awaited when the registry may have changed. Changes are told under the schema's name."""

    def __init__(
        self,
        database: Database,
        look: Callable[[], Awaitable[None]],
        *,
        interval: timedelta = timedelta(seconds=5),
    ) -> None:
        self._database = database
        self._look = look
        self._interval = interval
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    async def run_once(self) -> None:
        try:
            await self._look()
        except MqgateError as error:
            _log.debug("registry could not be looked at", error=error.detail)

    async def _loop(self) -> None:
        while True:
            try:
                await self._listen()
            except MqgateError as error:
                _log.debug("registry is not listened to", error=error.detail)
            await asyncio.sleep(_PAUSE)
            await self.run_once()

    async def _listen(self) -> None:
        async with self._database.alone() as connection:
            await connection.execute(f'LISTEN "{self._database.schema}"'.encode())
            while True:
                await self.run_once()
                # Ends with the first that comes, those that came meanwhile included, or when it is time.
                async for _ in connection.notifies(timeout=self._interval.total_seconds(), stop_after=1):
                    pass
