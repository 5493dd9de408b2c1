"""What every keeper of rates promises, within one process."""

import pytest

from mqgate.adapters.local.rates import LocalRates
from mqgate.testing.clock import ManualClock
from mqgate.testing.rates_contract import RatesContract


class TestLocalRates(RatesContract):
    @pytest.fixture
    def rates(self, clock: ManualClock) -> LocalRates:
        return LocalRates(lambda: clock.now)
