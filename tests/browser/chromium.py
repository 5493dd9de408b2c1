"""Chromium for the browser tests: where it is, and how `make test` gets it on a fresh machine.

Run as a program it installs Debian's package if there is no Chromium yet and the user is root. Otherwise it prints
what to do. It always ends with 0: whether the tests fail without Chromium is decided by the tests.
"""

import os
import shutil
import subprocess
import sys

__all__ = ["HOW_TO_INSTALL", "find"]

HOW_TO_INSTALL = (
    "Chromium was not found. Install it, on Debian with `apt-get install chromium`, "
    "or set MQGATE_CHROMIUM to the path of a Chromium or Chrome."
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")


def find() -> str | None:
    """Return the path of the browser to use, or None."""
    if named := os.environ.get("MQGATE_CHROMIUM"):
        return shutil.which(named)
    return next(filter(None, map(shutil.which, _NAMES)), None)


def _install() -> None:
    """Install Debian's package, without a question and without output unless it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("update",), ("install", "--yes", "--no-install-recommends", "chromium")):
        done = subprocess.run(  # noqa: S603 - a fixed command
            [*_APT, *command], env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode:
            print(f"apt-get {command[0]} failed: {done.stderr.strip()}")  # noqa: T201 - a program that reports


def main() -> None:
    is_root = os.name == "posix" and os.geteuid() == 0
    if find() is None and "MQGATE_CHROMIUM" not in os.environ and is_root and shutil.which("apt-get"):
        _install()
    if find() is None:
        print(HOW_TO_INSTALL)  # noqa: T201 - a program that reports


if __name__ == "__main__":
    sys.exit(main())
