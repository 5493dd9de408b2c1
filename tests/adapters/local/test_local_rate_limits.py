"""The local rate limit store fulfils the contract of rate limit stores."""

import pytest

from mqgate.adapters.local.rate_limits import LocalRateLimits
from mqgate.testing.clock import ManualClock
from mqgate.testing.rate_limits_contract import RateLimitsContract


class TestLocalRateLimits(RateLimitsContract):
    @pytest.fixture
    def rates(self, clock: ManualClock) -> LocalRateLimits:
        return LocalRateLimits(lambda: clock.now)
