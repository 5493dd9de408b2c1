"""The background task of a service, started and stopped by its owner."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Background"]

# Seconds between two cancellations; longer than a clean-up takes.
_CANCEL_INTERVAL = 1.0


class Background:
    """A task that runs until it is stopped."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task. A second call changes nothing."""
        self._task = self._task or asyncio.create_task(self._work())

    async def stop(self) -> bool:
        """Cancel the task and wait for its end. Return False if it was not running. Raise the error it failed with."""
        task, self._task = self._task, None
        if task is None:
            return False
        while not task.done():
            # Repeated because `wait_for` before Python 3.12, also in libraries, may swallow a cancellation.
            task.cancel()
            # `await task` could not distinguish our own cancellation from that of the task.
            await asyncio.wait((task,), timeout=_CANCEL_INTERVAL)
        if not task.cancelled():
            task.result()
        return True
