"""PostgreSQL's clock, as it is known here without asking it each time.

Every heartbeat brings a sample: the server's time, and how long the answer took. Between samples our own steady clock
counts on; our wall clock, which may be minutes off, is never looked at. Of what an answer's journey leaves open we
take the latest instant: `now + delay` is never too early, and late by one journey at most.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

__all__ = ["ServerClock"]

# How much two quartzes may drift apart.
_DRIFT = 200e-6


class _Sample(NamedTuple):
    told: datetime
    asked: float
    answered: float

    def latest(self, at: float) -> datetime:
        return self.told + timedelta(seconds=at - self.asked)

    def doubt(self, at: float) -> timedelta:
        return timedelta(seconds=self.answered - self.asked + _DRIFT * (at - self.answered))


class ServerClock:
    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self.steady = steady
        self._best: _Sample | None = None

    def learn(self, told: datetime, asked: float) -> None:
        """The server said `told` to a question asked at that reading of `steady`; its answer is here now."""
        now = self.steady()
        fresh = _Sample(told, asked, now)
        if self._best is None or fresh.doubt(now) <= self._best.doubt(now) or self._has_jumped(fresh, now):
            self._best = fresh

    def now(self) -> datetime:
        """The server's time, not before it is."""
        if self._best is None:
            raise RuntimeError("nobody has asked the server for its time yet")
        return self._best.latest(self.steady())

    def _has_jumped(self, fresh: _Sample, now: float) -> bool:
        """Whether both cannot be true: the server's clock was set."""
        if self._best is None:
            return True
        ahead = fresh.latest(now) - self._best.latest(now)
        return ahead < -self._best.doubt(now) or ahead > fresh.doubt(now)
