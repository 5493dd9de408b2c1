"""A process that stops a stack when its owner has ended: `python -m mqgate.stack.guard DIRECTORY PID`.

A test run that is killed cannot call `down`. The guard detects its end, stops the stack, and exits.
"""

import os
import sys
import time
from pathlib import Path

from mqgate.stack.process import launch
from mqgate.stack.stack import Stack

__all__ = ["guard"]

_INTERVAL = 0.5
# Workers of a killed run continue for a while, and may start a server again.
_QUIET_PERIOD = 20.0


def guard(stack: Stack, owner: int) -> None:
    """Start a guard that stops the stack when the process `owner` has ended."""
    stack.directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "mqgate.stack.guard", str(stack.directory), str(owner)]
    launch(command, log=stack.directory / "guard.log")


def main() -> None:
    directory, owner = Path(sys.argv[1]), int(sys.argv[2])
    while directory.exists() and _exists(owner):
        time.sleep(_INTERVAL)
    last = time.monotonic()
    while directory.exists() and time.monotonic() - last < _QUIET_PERIOD:
        if Stack(directory).down():
            last = time.monotonic()
        time.sleep(_INTERVAL)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main()
