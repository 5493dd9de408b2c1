"""Processes whose wall clock is wrong."""

from datetime import timedelta
from pathlib import Path

__all__ = ["skewed"]


def skewed(off_by: timedelta) -> dict[str, str]:
    """The environment of a process whose clock is off by so much, until SIGUSR1 sets it right."""
    return {"PYTHONPATH": str(Path(__file__).with_name("skewed")), "CLOCK_OFF_BY": f"{off_by.total_seconds():.0f}"}
