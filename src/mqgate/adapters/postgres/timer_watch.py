"""Checks once a second for timers that other gateways scheduled, and for claims of gateways that are gone.

A new timer wakes only the dispatcher of its own gateway. If that gateway crashes, another dispatcher must find it.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from mqgate.adapters.postgres.timer_store import PostgresTimerStore
from mqgate.background import Background
from mqgate.core.errors import MqgateError

__all__ = ["TimerWatch"]

_log = structlog.get_logger()


class TimerWatch:
    """Background check. `on_due` receives the next due time; `on_abandoned` is called if there are abandoned claims."""

    def __init__(
        self,
        timers: PostgresTimerStore,
        *,
        on_due: Callable[[datetime], None],
        on_abandoned: Callable[[], None],
        interval: timedelta = timedelta(seconds=1),
    ) -> None:
        self._timers = timers
        self._on_due = on_due
        self._on_abandoned = on_abandoned
        self._interval = interval
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    async def run_once(self) -> None:
        outlook = await self._timers.outlook()
        if outlook.is_abandoned:
            self._on_abandoned()
        if outlook.due is not None:
            self._on_due(outlook.due)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval.total_seconds())
            try:
                await self.run_once()
            except MqgateError as error:
                _log.debug("timer check failed", error=error.detail)
