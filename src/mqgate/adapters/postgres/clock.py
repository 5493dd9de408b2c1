"""Estimate of the PostgreSQL clock that needs no round trip.

Every heartbeat adds a sample: the server time and the duration of the round trip. Between samples the local monotonic
clock is used, never the local wall clock. The estimate is the latest possible instant, so `now + delay` is never too
early, and late by at most one round trip.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

__all__ = ["ServerClock"]

# Maximum relative drift of two clocks.
_DRIFT = 200e-6


class _Sample(NamedTuple):
    server_time: datetime
    sent: float
    received: float

    def latest(self, at: float) -> datetime:
        return self.server_time + timedelta(seconds=at - self.sent)

    def uncertainty(self, at: float) -> timedelta:
        return timedelta(seconds=self.received - self.sent + _DRIFT * (at - self.received))


class ServerClock:
    """Estimated clock of the server. `steady` is the local monotonic clock."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self.steady = steady
        self._best: _Sample | None = None

    def add_sample(self, server_time: datetime, sent: float) -> None:
        """Add a server time that was requested at `sent` (a reading of `steady`) and has arrived now."""
        now = self.steady()
        fresh = _Sample(server_time, sent, now)
        if self._best is None or fresh.uncertainty(now) <= self._best.uncertainty(now) or self._has_jumped(fresh, now):
            self._best = fresh

    def now(self) -> datetime:
        """Return the latest possible server time."""
        if self._best is None:
            raise RuntimeError("the clock has no sample yet")
        return self._best.latest(self.steady())

    def _has_jumped(self, fresh: _Sample, now: float) -> bool:
        """Return whether the samples contradict each other, because the server clock was set."""
        if self._best is None:
            return True
        ahead = fresh.latest(now) - self._best.latest(now)
        return ahead < -self._best.uncertainty(now) or ahead > fresh.uncertainty(now)
