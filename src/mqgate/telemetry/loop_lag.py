"""Measures how long requests keep the event loop from its other work.

A timer that is late shows that the loop was busy, or that the machine was. The CPU time of the loop's thread between
two checks tells the two apart: only what this process computed counts as blocking.
"""

import asyncio
import time

from mqgate.telemetry.metrics import Metrics

__all__ = ["LoopLag"]

_INTERVAL = 0.05


class LoopLag:
    """Background service that observes the loop in which it was started."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._handle: asyncio.TimerHandle | None = None
        self._expected = 0.0
        self._cpu = 0.0
        self._longest = 0.0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._expected = loop.time() + _INTERVAL
        self._cpu = time.thread_time()
        self._handle = loop.call_at(self._expected, self._check, loop)

    async def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        lag = max(loop.time() - self._expected, 0.0)
        self._metrics.loop_lag.observe(lag)
        # Of the CPU time since the last check, at most the lag was spent in the turn that delayed this one.
        blocked = min(lag, time.thread_time() - self._cpu)
        if blocked > self._longest:
            self._longest = blocked
            self._metrics.loop_blocked.set(blocked)
        self.start()
