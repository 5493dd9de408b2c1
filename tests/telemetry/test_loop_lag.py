"""The gauge of the event loop shows the longest turn, in CPU time, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from mqgate.telemetry.loop_lag import LoopLag
from mqgate.telemetry.metrics import Metrics

BLOCK = 0.15
# Seconds: one interval of the checks, and some for the loop's clock, which counts milliseconds.
EXACTNESS = 0.025


class Measured:
    """The gauge, and a way to wait until it is current."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @property
    def blocked(self) -> float:
        """Seconds, as `/metrics` shows them."""
        lines = self._metrics.render().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("mqgate_loop_blocked_cpu_seconds"))

    @property
    def checks(self) -> float:
        lines = self._metrics.render().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("mqgate_loop_lag_seconds_count"))

    async def checked(self, times: int = 2) -> None:
        """Wait until the loop was checked this many times more."""
        until = self.checks + times
        while self.checks < until:  # noqa: ASYNC110 - a metric sets no event
            await asyncio.sleep(0.002)


@pytest.fixture
async def measured() -> AsyncIterator[Measured]:
    metrics = Metrics()
    lag = LoopLag(metrics)
    lag.start()
    measured = Measured(metrics)
    await measured.checked()
    yield measured
    await lag.stop()


def compute(seconds: float) -> float:
    """Use CPU time without a pause. Return how much it was."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
    return time.thread_time() - began


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.01, 0.015, 0.03])
async def test_a_handler_that_computes_is_measured(measured: Measured, pause: float) -> None:
    """A request that holds the loop for 100 ms must be visible, wherever between two checks it began."""
    await asyncio.sleep(pause)

    spent = compute(BLOCK)

    await measured.checked()
    assert spent - EXACTNESS < measured.blocked < spent + EXACTNESS


async def test_many_short_turns_do_not_add_up(measured: Measured) -> None:
    """A loop that is always busy, but takes new work in between, blocks no request."""
    for _ in range(300):
        compute(0.001)
        await asyncio.sleep(0)
    await measured.checked()

    assert measured.blocked < EXACTNESS


async def test_a_busy_machine_is_not_a_busy_loop(measured: Measured) -> None:
    """A process that does not get the CPU is late, but did not block itself. The fault is elsewhere."""
    time.sleep(BLOCK)  # noqa: ASYNC251 - the loop waits as it would for the CPU
    await measured.checked()

    assert measured.blocked < EXACTNESS
