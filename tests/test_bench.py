"""The bench is not run by the tests; that all of it can be loaded is seen here."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench" / "run.py"


def test_a_bench_that_is_not_there_is_named_beside_those_that_are() -> None:
    """A part that cannot be imported shows here too, and not an hour into a run."""
    ended = subprocess.run([sys.executable, str(BENCH), "nonsense"], capture_output=True, text=True, check=False)  # noqa: S603 - our own

    assert ended.returncode == 1
    assert "no bench is called nonsense; there are publish, receive" in ended.stderr
