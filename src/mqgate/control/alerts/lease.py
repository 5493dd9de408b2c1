"""The lease of the gateway that evaluates the rules.

Every gateway tries to take it every 5 s, and it ends 15 s after its last extension. So another gateway evaluates at
most 20 s after the evaluator was killed. While the store is unavailable, nobody can take the lease, and the last holder
keeps its term: it is the gateway that reports the outage.
"""

import asyncio
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

    def __init__(self, store: AlarmStore) -> None:
        self._store = store
        self.holder = uuid4().hex
        self.term: int | None = None
        # Set when the lease was taken, so that the first evaluation does not wait for its interval.
        self.taken = asyncio.Event()
        self._background = Background(self._loop)

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
        try:
            term = await self._store.acquire(self.holder, _TTL)
        except MqgateError as error:
            _log.debug("evaluator lease not extended", error=error.detail)
            return
        if term is not None and term != self.term:
            _log.info("evaluator lease taken", term=term)
            self.taken.set()
        self.term = term

    async def _loop(self) -> None:
        while True:
            await self.run_once()
            await asyncio.sleep(_INTERVAL)
