"""Python imports this before anything else: the wall clock of this process is off by CLOCK_OFF_BY seconds.

SIGUSR1 sets it right.
"""

import os
import signal
import time

_off_by_ns = int(os.environ["CLOCK_OFF_BY"]) * 1_000_000_000
_true_ns = time.time_ns


def _set_right(*_: object) -> None:
    global _off_by_ns  # noqa: PLW0603 - a process has one clock
    _off_by_ns = 0


signal.signal(signal.SIGUSR1, _set_right)
time.time_ns = lambda: _true_ns() + _off_by_ns
time.time = lambda: time.time_ns() / 1e9
