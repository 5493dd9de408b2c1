"""A service's own task: begun once, ended and awaited by whoever owns it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Background"]

# More than cleaning up takes.
_PATIENCE = 1.0


class Background:
    """Work that goes on until it is stopped."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. A second call changes nothing."""
        self._task = self._task or asyncio.create_task(self._work())

    async def stop(self) -> bool:
        """End it, and wait until it has ended; False if it was not running. What it failed with is raised."""
        task, self._task = self._task, None
        if task is None:
            return False
        while not task.done():
            # Again and again: until Python 3.12 a `wait_for`, also of a library, may forget that it was cancelled.
            task.cancel()
            # Not `await task`: that would take our own cancellation for the task's.
            await asyncio.wait((task,), timeout=_PATIENCE)
        if not task.cancelled():
            task.result()
        return True
