"""Measures how long requests keep the event loop from its other work.

A timer that is late shows that the loop was busy, or that the machine was. The CPU time of the loop's thread since the
last check distinguishes the two: only what this process computed counts as blocking.

A turn of the loop that ends before the timer is due is not measured, so short turns do not add up.
A long turn is measured from the instant at which the timer was due. It may have begun up to one interval before, so the
gauge is exact to one interval. That is why the interval is short. Measuring each turn is not possible on uvloop, and
reading the CPU time for each callback would cost more than many requests.
"""

import asyncio
import time

from mqgate.telemetry.metrics import Metrics

__all__ = ["LoopLag"]

# Seconds. An idle gateway wakes up for each check: 50 per second cost less than 1 % of a core.
_INTERVAL = 0.02


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
        # `loop.time()` is not used because it does not advance during a turn.
        self._expected = time.monotonic() + _INTERVAL
        self._cpu = time.thread_time()
        self._handle = loop.call_later(_INTERVAL, self._check)

    async def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _check(self) -> None:
        lag = max(time.monotonic() - self._expected, 0.0)
        self._metrics.loop_lag.observe(lag)
        blocked = min(lag, time.thread_time() - self._cpu)
        if blocked > self._longest:
            self._longest = blocked
            self._metrics.loop_blocked.set(blocked)
        self.start()
