"""What every keeper of rates promises, within one process."""

import pytest

from mqgate.adapters.local.rate_limits import LocalRateLimits
from mqgate.testing.clock import ManualClock
from mqgate.testing.rate_limits_contract import RateLimitsContract


class TestLocalRates(RateLimitsContract):
    @pytest.fixture
    def rates(self, clock: ManualClock) -> LocalRateLimits:
        return LocalRateLimits(lambda: clock.now)
