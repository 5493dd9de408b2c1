"""Keeps what a gateway knows of control data up to date with what other gateways change.

It looks when it is told to: by whoever hears of changes, and by requests for something that is not known here. An admin
who has registered a topic at one gateway may use it at the next at once: nobody is told that something is not there
before this gateway has looked. Requests for what is nowhere must not become questions to the store one by one: those
that come together share a look, and looks are spaced out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from mqgate.core.errors import MqgateError

__all__ = ["RegistryFollower"]


class RegistryFollower:
    """`looks` are what there is to do: each catches up with one thing."""

    def __init__(
        self, *sources: Callable[[], Awaitable[object]], spacing: timedelta = timedelta(milliseconds=100)
    ) -> None:
        self._sources = sources
        self._spacing = spacing.total_seconds()
        self._turn = asyncio.Lock()
        self._began_at = float("-inf")
        # Looks that began, and the last one that came to an end. Not told apart by when they began: uvloop's clock
        # stands still for a millisecond, and for as long as a turn of the loop takes.
        self._begun = self._ended = 0
        self._error: MqgateError | None = None

    async def refresh(self) -> None:
        """Catch up now."""
        for refresh in self._sources:
            await refresh()

    async def catch_up(self) -> None:
        """Wait for a look that began after this call did; raises what it failed with, for then nothing is known."""
        now = asyncio.get_running_loop().time
        asked = self._begun
        async with self._turn:
            if self._ended <= asked:
                await asyncio.sleep(self._began_at + self._spacing - now())
                self._begun += 1
                number, began_at = self._begun, now()
                self._error = None
                try:
                    await self.refresh()
                except MqgateError as error:
                    self._error = error
                # Not if this was cancelled: the next in line looks itself then.
                self._ended, self._began_at = number, began_at
            if self._error is not None:
                raise self._error.with_traceback(None)
