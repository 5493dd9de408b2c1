"""The delay before a failed message is delivered again."""

import random
from dataclasses import dataclass
from datetime import timedelta

from mqgate.core.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Either an exponential delay with jitter, or a list of delays whose last entry repeats."""

    initial: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max_delay: timedelta = timedelta(minutes=10)
    jitter: float = 0.2
    steps: tuple[timedelta, ...] = ()

    def __post_init__(self) -> None:
        if min((self.initial, self.max_delay, *self.steps)) < timedelta(0):
            raise InvalidValue("backoff delays must not be negative", field="backoff")
        if not 1 <= self.factor <= 100:  # noqa: PLR2004 - a larger factor reaches max_delay at once
            raise InvalidValue("backoff.factor must be between 1 and 100", field="backoff.factor")
        if not 0 <= self.jitter <= 1:
            raise InvalidValue("backoff.jitter must be between 0 and 1", field="backoff.jitter")

    def delay(self, failures: int, dice: random.Random) -> timedelta:
        """Return the delay after `failures` failed deliveries. 0 counts as 1: an uncounted delivery may fail too."""
        failures = max(failures, 1)
        if self.steps:
            return self.steps[min(failures, len(self.steps)) - 1]
        if not self.initial:
            return timedelta(0)
        # The exponent is limited because a larger power would overflow; max_delay applies long before.
        max_delay = self.max_delay.total_seconds()
        plain = min(self.initial.total_seconds() * self.factor ** min(failures - 1, 64), max_delay)
        return timedelta(seconds=min(plain * (1 + self.jitter * (2 * dice.random() - 1)), max_delay))


NO_BACKOFF = Backoff(initial=timedelta(0), max_delay=timedelta(0), jitter=0)
