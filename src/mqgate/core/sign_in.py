"""The wait between attempts to sign in: free attempts first, then a wait that doubles with each failure."""

import hashlib
from datetime import datetime, timedelta
from typing import NamedTuple

__all__ = ["AttemptLimit", "Attempts", "Slot", "slot_of"]

_NO_WAIT = timedelta(0)
_MAX_DOUBLINGS = 20


class AttemptLimit(NamedTuple):
    """`free` attempts without a wait, the maximum wait, and the time after which attempts are forgotten."""

    free: int
    max_wait: timedelta
    memory: timedelta


class Slot(NamedTuple):
    """A counter of attempts. Accounts or addresses with the same hash share one, so that their number is bounded."""

    name: str
    limit: AttemptLimit


class Attempts(NamedTuple):
    """The attempts of a slot that did not succeed, and when the last one began."""

    failures: int
    at: datetime

    def wait(self, limit: AttemptLimit, now: datetime) -> timedelta:
        """Return how long the next attempt has to wait."""
        if self.failures < limit.free or now - self.at >= limit.memory:
            return _NO_WAIT
        needed = min(timedelta(seconds=1 << min(self.failures - limit.free, _MAX_DOUBLINGS)), limit.max_wait)
        # A clock that moved backwards must not block for longer than the maximum wait.
        return max(min(self.at + needed - now, needed), _NO_WAIT)

    def next(self, limit: AttemptLimit, now: datetime) -> "Attempts":
        """Return the attempts after one more."""
        return Attempts(1 if now - self.at >= limit.memory else self.failures + 1, now)


def slot_of(kind: str, subject: str, limit: AttemptLimit) -> Slot:
    return Slot(f"{kind} {hashlib.sha256(subject.encode()).hexdigest()[:4]}", limit)
