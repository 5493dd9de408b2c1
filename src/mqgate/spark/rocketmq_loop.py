"""An event loop in a thread of its own, for callers that know of none.

In the caller's thread it would stand still between two calls: pulls under way would meet their deadlines while Spark
takes its time with a batch, servers would hang up on connections that nobody keeps alive, and a notebook, whose thread
runs a loop already, could not call at all. All the work is done in this thread, not only the waiting: two busy threads
would wait for each other's turn more than for the broker.
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
    """Runs until it is closed, or until the process ends."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Do it there, and wait; who is interrupted while waiting ends it."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # It was closed.
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def tell(self, what: Callable[[], object]) -> None:
        """Do it there some time, if it runs still."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what)

    def close(self) -> None:
        """End all that is under way."""
        self.run(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
