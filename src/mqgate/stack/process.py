"""Processes that outlive the process that started them, and are stopped only if their command line matches.

A server is started through a shell that ends at once, so it has no parent here: it continues when the starting command
ends, it leaves no zombie, and a terminal does not send it signals. A stored process id may have been reused, so a
process belongs to the stack only while its command line ends with the recorded command.
"""

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["end", "is_running", "launch"]

_INTERVAL = 0.05
# During exec a process has no command line. A zombie never has one.
_EXEC_TIMEOUT = 0.5
_ENDED = ("Z", "X")


def launch(command: Sequence[str], *, log: Path, user: str | None = None) -> int:
    """Start the command in a new session with its output in `log`, and return the process id."""
    account = pwd.getpwnam(user) if user else None
    with suppress(FileNotFoundError):
        log.rename(log.with_suffix(".before"))
    with log.open("wb") as output:
        started = subprocess.run(  # noqa: S603 - a command of this package
            ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=log.parent,
            start_new_session=True,
            user=account and account.pw_uid,
            group=account and account.pw_gid,
            extra_groups=[] if account else None,
            check=True,
        )
    return int(started.stdout)


def is_running(pid: int | None, command: Sequence[str]) -> bool:
    """Return whether the process id still belongs to the command. A zombie does not run."""
    return pid is not None and _command_line(pid).endswith(" ".join(command))


def end(pid: int | None, command: Sequence[str], sign: signal.Signals, *, patience: float) -> None:
    """Send the signal and wait for the end of the process, then use SIGKILL. Ignore other processes."""
    for number, wait in ((sign, patience), (signal.SIGKILL, 60.0)):
        if pid is None or not is_running(pid, command):
            return
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + wait
        while is_running(pid, command) and time.monotonic() < deadline:
            time.sleep(_INTERVAL)


def _command_line(pid: int) -> str:
    if Path("/proc/self/cmdline").exists():
        deadline = time.monotonic() + _EXEC_TIMEOUT
        try:
            while not (line := Path(f"/proc/{pid}/cmdline").read_bytes()) and time.monotonic() < deadline:
                state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
                if state in _ENDED:
                    return ""
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return line.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    listed = subprocess.run(  # noqa: S603 - the argument is a number
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.rstrip("\n")
