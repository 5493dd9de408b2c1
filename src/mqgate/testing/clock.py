"""A clock that advances only when a test moves it."""

from datetime import UTC, datetime, timedelta

from mqgate.core.message import instant, milliseconds

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class ManualClock:
    """A clock for stores and gateways in tests."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now_ms = milliseconds(now)

    def __call__(self) -> int:
        """Return the time in milliseconds, as stores expect from a wall clock."""
        return self._now_ms

    @property
    def now(self) -> datetime:
        return instant(self._now_ms)

    def advance(self, by: timedelta | float) -> None:
        """Advance the clock by a duration or by seconds."""
        if not isinstance(by, timedelta):
            by = timedelta(seconds=by)
        self._now_ms += by // timedelta(milliseconds=1)
