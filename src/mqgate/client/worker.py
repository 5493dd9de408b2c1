"""Calls functions of an application for the messages of groups."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from mqgate.client.async_client import AsyncClient
from mqgate.client.delivery import WorkerEvent
from mqgate.client.handlers import Handler
from mqgate.client.requests import seconds
from mqgate.client.worker_group import GroupWorker, WorkerOptions

__all__ = ["Worker"]

H = TypeVar("H", bound=Handler)
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger(__name__)


class Worker:
    """A consumer of one or several groups in message mode.

    A handler that returns has its message acknowledged. One that raises has it delivered again after the backoff of the
    group; `Retry` chooses the delay, and `Reject` dead-letters the message. Handlers may be coroutines, which run in
    the event loop, or functions, which run in threads.

    `concurrency` handlers of each group run at a time, and up to `prefetch` messages are held. Their leases of
    `visibility` (default: that of the group) are extended until the handler ends or `time_limit` has passed. `grace` is
    the time that running handlers have to end after `stop` or SIGTERM. A gateway that does not respond within `timeout`
    is given up for the next one; it should be shorter than a lease.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        *,
        concurrency: int = 8,
        prefetch: int | None = None,
        visibility: float | timedelta | None = None,
        time_limit: float | timedelta = timedelta(hours=1),
        grace: float | timedelta = 30.0,
        ack_linger: float | timedelta = 0.1,
        timeout: float | timedelta = 10.0,
        client_id: str | None = None,
        on_event: Callable[[WorkerEvent], None] | None = None,
    ) -> None:
        self._url = url
        self._key = key
        self._timeout = timeout
        self._concurrency = concurrency
        self._options = {
            "visibility": None if visibility is None else seconds(visibility),
            "time_limit": seconds(time_limit),
            "grace": seconds(grace),
            "ack_linger": seconds(ack_linger),
            "client_id": client_id or f"{socket.gethostname()}-{os.getpid()}",
        }
        self._prefetch = prefetch
        self._on_event = on_event
        self._handlers: dict[str, tuple[Handler, int]] = {}
        self._groups: list[GroupWorker] = []
        self._is_stopped = False

    def handler(self, group: str, *, concurrency: int | None = None) -> Callable[[H], H]:
        """Return the decorator that makes a function the handler of a group."""

        def register(function: H) -> H:
            if group in self._handlers:
                raise ValueError(f"group {group} has a handler already")
            self._handlers[group] = (function, concurrency or self._concurrency)
            return function

        return register

    def run(self) -> None:
        """Work until `stop`, SIGTERM or Ctrl-C. A second signal ends without waiting for handlers."""
        asyncio.run(self._run_with_signals())

    async def run_async(self) -> None:
        """Work until `stop` is called. Raise GatewayError or WorkerError if a group cannot be consumed."""
        if not self._handlers:
            raise ValueError("the worker has no handler: decorate a function with @worker.handler(group)")
        self._is_stopped = False
        observe = None if self._on_event is None else self._observe
        async with AsyncClient(self._url, self._key, timeout=self._timeout) as client:
            self._groups = [
                GroupWorker(client, group, handler, self._options_of(concurrency), observe)
                for group, (handler, concurrency) in self._handlers.items()
            ]
            tasks = [asyncio.create_task(group.run()) for group in self._groups]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                self.stop()
                await asyncio.wait(tasks)
            for task in tasks:
                task.result()

    def stop(self) -> None:
        """Receive no more, and let `run` return when the running handlers have ended. Call it in the event loop."""
        for group in self._groups:
            group.stop()

    def _options_of(self, concurrency: int) -> WorkerOptions:
        prefetch = self._prefetch or max(2 * concurrency, 32)
        return WorkerOptions(concurrency=concurrency, prefetch=max(prefetch, concurrency), **self._options)  # type: ignore[arg-type]

    def _observe(self, event: WorkerEvent) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - a broken hook must not stop the work
            _log.exception("on_event failed")

    async def _run_with_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            await self.run_async()
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self.stop()
            return
        _log.warning("worker does not wait for its handlers, because of a second signal")
        for group in self._groups:
            group.abort()
