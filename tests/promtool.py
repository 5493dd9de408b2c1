"""promtool for the tests of `deploy/`: where it is, and how `make test` gets it on a fresh machine.

Run as a program it unpacks Debian's package `prometheus` into `.venv/promtool`, which installs nothing and needs no
root. Otherwise it prints what to do. It always ends with 0: whether tests fail without promtool is decided by them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["HOW_TO_INSTALL", "find"]

HOW_TO_INSTALL = (
    "promtool was not found. Run `make ready-promtool` on Debian, install Prometheus, "
    "or set MQGATE_PROMTOOL to the path of a promtool."
)
_UNPACKED = Path(__file__).parent.parent / ".venv" / "promtool"
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")


def find() -> str | None:
    """Return the path of promtool, or None."""
    if named := os.environ.get("MQGATE_PROMTOOL"):
        return shutil.which(named)
    return shutil.which("promtool") or shutil.which(_UNPACKED / "usr/bin/promtool")


def _run(*command: str, directory: str) -> bool:
    done = subprocess.run(  # noqa: S603 - fixed commands
        command, cwd=directory, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        print(f"{' '.join(command[:5])} failed: {done.stderr.strip()}")  # noqa: T201 - a program that reports
    return not done.returncode


def _unpack() -> None:
    """Download the package and unpack it. The lists of packages are updated only if the download fails."""
    with tempfile.TemporaryDirectory() as directory:
        download = (*_APT, "download", "prometheus")
        if not _run(*download, directory=directory):
            _run(*_APT, "update", directory=directory)
            if not _run(*download, directory=directory):
                return
        (package,) = Path(directory).glob("prometheus_*.deb")
        unpacked = Path(directory, "unpacked")
        if _run("dpkg", "-x", str(package), str(unpacked), directory=directory):
            tool = _UNPACKED / "usr/bin/promtool"
            tool.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(unpacked / "usr/bin/promtool", tool)


def main() -> None:
    if find() is None and "MQGATE_PROMTOOL" not in os.environ and shutil.which("apt-get") and shutil.which("dpkg"):
        _unpack()
    if find() is None:
        print(HOW_TO_INSTALL)  # noqa: T201 - a program that reports


if __name__ == "__main__":
    sys.exit(main())
