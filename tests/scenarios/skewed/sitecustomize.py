"""Python imports this before anything else: the wall clock of this process is off by CLOCK_OFF_BY seconds."""

import os
import time

_OFF_BY_NS = int(os.environ["CLOCK_OFF_BY"]) * 1_000_000_000
_true_ns = time.time_ns

time.time_ns = lambda: _true_ns() + _OFF_BY_NS
time.time = lambda: time.time_ns() / 1e9
