"""Reloads control data that other gateways change.

The data is reloaded when a change is notified, and when a request names an entry that this gateway does not have. So an
entry that was registered at one gateway can be used at any other immediately: no gateway reports an entry as missing
before it has reloaded the registry. Requests for entries that exist nowhere must not cause one store query each:
concurrent ones share a reload, and reloads have a minimum spacing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from mqgate.core.errors import MqgateError

__all__ = ["RegistryFollower"]


class RegistryFollower:
    """The reload of control data. Each of `sources` reloads one part."""

    def __init__(
        self, *sources: Callable[[], Awaitable[object]], spacing: timedelta = timedelta(milliseconds=100)
    ) -> None:
        self._sources = sources
        self._spacing = spacing.total_seconds()
        self._lock = asyncio.Lock()
        self._started_at = float("-inf")
        # Reloads are numbered and not compared by start time: the clock of uvloop does not advance within one
        # iteration of the loop.
        self._last_started = self._last_finished = 0
        self._error: MqgateError | None = None

    async def refresh(self) -> None:
        """Reload now."""
        for source in self._sources:
            await source()

    async def catch_up(self) -> None:
        """Wait for a reload that started after this call. Raise its error, because then the state is unknown."""
        now = asyncio.get_running_loop().time
        started_before = self._last_started
        async with self._lock:
            if self._last_finished <= started_before:
                await asyncio.sleep(self._started_at + self._spacing - now())
                self._last_started += 1
                number, started_at = self._last_started, now()
                self._error = None
                try:
                    await self.refresh()
                except MqgateError as error:
                    self._error = error
                # Not reached on cancellation: the next waiting call then reloads.
                self._last_finished, self._started_at = number, started_at
            if self._error is not None:
                raise self._error.with_traceback(None)
