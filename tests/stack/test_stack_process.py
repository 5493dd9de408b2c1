"""Processes of a stack, identified by their command line."""

import os
import signal
import subprocess
from pathlib import Path

from mqgate.stack.process import is_running, launch

LAUNCHES, LOOKS = 400, 30


def test_a_process_counts_as_running_during_exec(tmp_path: Path) -> None:
    """A process has no command line during exec, which must not be mistaken for its end."""
    command = ("/bin/sleep", "30")
    seen = set()

    for _ in range(LAUNCHES):
        pid = launch(command, log=tmp_path / "out.log")
        seen |= {is_running(pid, command) for _ in range(LOOKS)}
        os.kill(pid, signal.SIGKILL)

    assert seen == {True}


def test_a_process_that_ended_is_not_running() -> None:
    """A zombie does not run."""
    command = ("/bin/sleep", "30")
    child = subprocess.Popen(command)  # noqa: S603 - our own words
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert not is_running(child.pid, command)
    child.wait()
