"""The due time of a message."""

from datetime import datetime, timedelta

import pytest

from mqgate.core.errors import InvalidValue
from mqgate.delay.plan import plan
from mqgate.testing.clock import NOON

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def test_a_delay_and_an_instant_name_the_same_due_time() -> None:
    """Producers may state whichever they know."""
    assert plan(HOUR, None, NOON, DAY) == plan(None, NOON + HOUR, NOON, DAY) == NOON + HOUR


@pytest.mark.parametrize("at", [NOON, NOON - HOUR])
def test_an_instant_that_has_passed_means_now(at: datetime) -> None:
    """A message that is late already must not wait for the dispatcher."""
    assert plan(None, at, NOON, DAY) is None


def test_a_due_time_beyond_the_limit_is_refused() -> None:
    """A silently shortened delay would deliver a message too early."""
    with pytest.raises(InvalidValue, match="delay"):
        plan(2 * DAY, None, NOON, DAY)


def test_delay_and_instant_together_are_refused() -> None:
    """One of them would be ignored silently."""
    with pytest.raises(InvalidValue):
        plan(HOUR, NOON + HOUR, NOON, DAY)
