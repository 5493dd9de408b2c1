"""Applies approved applications, and retries while a broker or store is unavailable.

Every gateway runs it. An attempt first stores the time of the next one, so that only one gateway applies an
application at a time; if that gateway dies, another one repeats the attempt. Executions can be repeated.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from mqgate.background import Background
from mqgate.control.approvals.model import next_state
from mqgate.control.approvals.requests import Requests
from mqgate.core.application import Application
from mqgate.core.errors import ApplicationChanged, Busy, MqgateError, RegistryChanged
from mqgate.ports.application_store import ApplicationStore

__all__ = ["FIRST_RETRY", "ApplicationApplier"]

_BATCH = 20
FIRST_RETRY = timedelta(seconds=30)
_MAX_RETRY = timedelta(minutes=10)
_log = structlog.get_logger()


class ApplicationApplier:
    """Background service that checks for approved applications at each interval, and after `wake`."""

    def __init__(
        self,
        store: ApplicationStore,
        requests: Requests,
        clock: Callable[[], datetime],
        interval: timedelta = timedelta(seconds=2),
    ) -> None:
        self._store = store
        self._requests = requests
        self._clock = clock
        self._interval = interval.total_seconds()
        self._woken = asyncio.Event()
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    def wake(self) -> None:
        """Check soon."""
        self._woken.set()

    async def run_once(self) -> None:
        """Apply what is due."""
        for application in await self._store.due(self._clock(), _BATCH):
            try:
                await self._attempt(application)
            except ApplicationChanged:
                # Another gateway applies it.
                continue

    async def _attempt(self, application: Application) -> None:
        delay = min(FIRST_RETRY * 2 ** min(application.attempts, 10), _MAX_RETRY)
        claimed = replace(
            application,
            version=application.version + 1,
            attempts=application.attempts + 1,
            next_attempt_at=self._clock() + delay,
        )
        await self._store.change(claimed, None)
        try:
            if claimed.plan is None and (plan := await self._requests.plan(claimed)) is not None:
                planned = replace(claimed, plan=plan, version=claimed.version + 1)
                await self._store.change(planned, None)
                claimed = planned
            await self._requests.execute(claimed)
        except (Busy, RegistryChanged) as error:
            await self._store.change(replace(claimed, version=claimed.version + 1, error=error.detail), None)
        except ApplicationChanged:
            raise
        except MqgateError as error:
            await self._finish(claimed, "fail", error.detail)
        except Exception:  # noqa: BLE001 - logged; an operator retries or withdraws it
            _log.exception("application failed", application=application.id)
            await self._finish(claimed, "fail", "Internal error. Search the log of the gateways for the application.")
        else:
            await self._finish(claimed, "apply", None)

    async def _finish(self, application: Application, action: str, error: str | None) -> None:
        """Store the result. The execution recorded its own audit entry."""
        done = replace(
            application,
            state=next_state(application, action),
            version=application.version + 1,
            error=error,
            next_attempt_at=None,
            applied_at=None if error else self._clock(),
        )
        await self._store.change(done, None)
        _log.info("application finished", application=done.id, state=str(done.state), error=error)

    async def _loop(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self.run_once()
            except MqgateError as error:
                _log.debug("applications not checked", error=error.detail)
            try:
                async with asyncio.timeout(self._interval):
                    await self._woken.wait()
            except TimeoutError:
                continue
