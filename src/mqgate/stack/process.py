"""Processes that outlive whoever started them, and are ended only if they are proven ours.

A server is started through a shell that ends at once. So it is nobody's child: it stays when the command that started
it ends, it leaves no zombie when it dies, and a signal to a terminal does not reach it. A number in a file may belong
to another process by now, hence a process is ours only while its command line ends with the one that we started.
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

_STEP = 0.05
# While a process becomes another program it has no command line; nor has a zombie, for good.
_BECOMING = 0.5
_ENDED = ("Z", "X")


def launch(command: Sequence[str], *, log: Path, user: str | None = None) -> int:
    """Start it in a session of its own, with all that it says in `log`; returns its number."""
    account = pwd.getpwnam(user) if user else None
    with suppress(FileNotFoundError):
        log.rename(log.with_suffix(".before"))
    with log.open("wb") as output:
        started = subprocess.run(  # noqa: S603 - a command of ours
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
    """Whether this number is still the process that we started; a zombie is not."""
    return pid is not None and _command_line(pid).endswith(" ".join(command))


def end(pid: int | None, command: Sequence[str], sign: signal.Signals, *, patience: float) -> None:
    """Send the signal and wait until it is gone; SIGKILL when the patience ends. Nothing, if it is gone or not ours."""
    for each, wait in ((sign, patience), (signal.SIGKILL, 60.0)):
        if pid is None or not is_running(pid, command):
            return
        with suppress(ProcessLookupError):
            os.kill(pid, each)
        deadline = time.monotonic() + wait
        while is_running(pid, command) and time.monotonic() < deadline:
            time.sleep(_STEP)


def _command_line(pid: int) -> str:
    if Path("/proc/self/cmdline").exists():
        deadline = time.monotonic() + _BECOMING
        try:
            while not (line := Path(f"/proc/{pid}/cmdline").read_bytes()) and time.monotonic() < deadline:
                state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
                if state in _ENDED:
                    return ""
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return line.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    told = subprocess.run(  # noqa: S603 - a number
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return told.stdout.rstrip("\n")
