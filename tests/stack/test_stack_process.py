"""Processes of a stack: known by their command line, from the first moment on."""

import os
import signal
import subprocess
from pathlib import Path

from mqgate.stack.process import is_running, launch

LAUNCHES, LOOKS = 400, 30


def test_a_process_counts_as_running_while_it_becomes_its_program(tmp_path: Path) -> None:
    """For a moment it has no command line at all; whoever takes that for its end gives up a server that is fine."""
    command = ("/bin/sleep", "30")
    seen = set()

    for _ in range(LAUNCHES):
        pid = launch(command, log=tmp_path / "out.log")
        seen |= {is_running(pid, command) for _ in range(LOOKS)}
        os.kill(pid, signal.SIGKILL)

    assert seen == {True}


def test_a_process_that_ended_is_not_running() -> None:
    """Also while nobody has asked for its exit code."""
    command = ("/bin/sleep", "30")
    child = subprocess.Popen(command)  # noqa: S603 - our own words
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert not is_running(child.pid, command)
    child.wait()
