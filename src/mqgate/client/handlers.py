"""Calls handlers: coroutines in the event loop, functions in threads."""

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mqgate.client.delivery import Message

__all__ = ["Handler", "HandlerThreads", "as_coroutine"]

Handler = Callable[[Message], Any]


def as_coroutine(handler: Handler, threads: "HandlerThreads") -> Callable[[Message], Awaitable[Any]]:
    """Return the handler as a coroutine function, which raises what the handler raises."""
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return handler
    return partial(threads.call, handler)


class HandlerThreads:
    """Threads for blocking handlers, started when they are needed.

    They are daemons: a handler that never returns must not keep a process that was told to stop.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._calls: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._threads = 0

    async def call(self, handler: Callable[[Message], Any], message: Message) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()
        if self._threads < self._count:
            self._threads += 1
            threading.Thread(target=self._run, name="mqgate-handler", daemon=True).start()
        self._calls.put((contextvars.copy_context(), handler, message, loop, ended))
        try:
            error = await ended
        except asyncio.CancelledError:
            # Its thread may never come back, and must not take a place.
            self._threads -= 1
            raise
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error

    def close(self) -> None:
        """End the threads that have no call."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _run(self) -> None:
        while call := self._calls.get():
            context, handler, message, loop, ended = call
            error: BaseException | None = None
            try:
                context.run(handler, message)
            except BaseException as raised:  # noqa: BLE001 - also sys.exit() must end only its message
                error = raised
            try:
                loop.call_soon_threadsafe(_end, ended, error)
            except RuntimeError:
                # The worker stopped without this handler.
                return


def _end(ended: "asyncio.Future[BaseException | None]", error: BaseException | None) -> None:
    if not ended.done():
        ended.set_result(error)
