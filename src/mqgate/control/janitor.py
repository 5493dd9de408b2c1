"""The schedule of all cleanup: retention, expired rows of the stores, and replaced receipt keys."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import structlog

from mqgate.background import Background
from mqgate.core.errors import MqgateError

__all__ = ["Janitor"]

_log = structlog.get_logger()


class Janitor:
    """Background service that runs its jobs once per interval, one after the other."""

    def __init__(self, interval: timedelta, jobs: Sequence[Callable[[], Awaitable[object]]]) -> None:
        self._interval = interval
        self._jobs = jobs
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    async def run_once(self) -> None:
        for job in self._jobs:
            await job()

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval.total_seconds())
            try:
                await self.run_once()
            except MqgateError as error:
                _log.warning("cleanup failed", error=error.detail)
