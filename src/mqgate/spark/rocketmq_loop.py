"""An event loop in its own thread, for synchronous callers.

A loop in the thread of the caller would stop between two calls: pulls would time out while Spark processes a batch,
servers would close idle connections, and a notebook, whose thread already runs a loop, could not call it. The thread
also decodes pages: two busy threads would wait for the interpreter lock more than for the broker.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

__all__ = ["LoopThread"]

_Result = TypeVar("_Result")


class LoopThread:
    """A thread with an event loop that runs until it is closed or the process ends."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in the thread and return its result. An interrupted wait cancels the coroutine."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # The loop is closed.
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Schedule a callback in the thread, unless the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """Cancel all tasks and stop the thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
