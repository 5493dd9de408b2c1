"""The lease of the gateway that evaluates the rules.

Every gateway tries to take it every 5 s, and it ends 15 s after its last extension. So another gateway evaluates at
most 20 s after the evaluator was killed. While the store is unavailable, the last holder keeps its term, because it is
the gateway that reports the outage. It cannot know whether another gateway has taken the lease: see `is_certain`.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import structlog

from mqgate.background import Background
from mqgate.core.errors import MqgateError
from mqgate.ports.alarm_store import AlarmStore

__all__ = ["EvaluatorLease"]

_TTL = timedelta(seconds=15)
_INTERVAL = 5.0
_log = structlog.get_logger()


class EvaluatorLease:
    """Background service that takes and extends the lease. `term` is None while another gateway holds it."""

    def __init__(self, store: AlarmStore, steady: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._steady = steady
        self._extended_at = 0.0
        self.holder = uuid4().hex
        self.term: int | None = None
        # Set when the lease was taken, so that the first evaluation does not wait for its interval.
        self.taken = asyncio.Event()
        self._background = Background(self._loop)

    @property
    def is_certain(self) -> bool:
        """Whether no other gateway can have the lease: it was extended within its time."""
        return self.term is not None and self._steady() - self._extended_at < _TTL.total_seconds()

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        """Stop and release the lease. Safe to call twice."""
        await self._background.stop()
        if self.term is not None:
            self.term = None
            try:
                await self._store.release(self.holder)
            except MqgateError as error:
                _log.warning("evaluator lease not released; left to expire", error=error.detail)

    async def run_once(self) -> None:
        """Take or extend the lease."""
        sent_at = self._steady()
        try:
            term = await self._store.acquire(self.holder, _TTL)
        except MqgateError as error:
            _log.debug("evaluator lease not extended", error=error.detail)
            return
        if term is not None and term != self.term:
            _log.debug("evaluator lease taken", term=term)
            self.taken.set()
        self.term, self._extended_at = term, sent_at

    async def _loop(self) -> None:
        while True:
            await self.run_once()
            await asyncio.sleep(_INTERVAL)
