"""Finding Java: RocketMQ's brokers and Spark need it; we never install it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["JavaNotFound", "find_java"]


class JavaNotFound(Exception):
    """There is no Java that is new enough; the text says how to get one."""


def find_java(oldest: int, needed_by: str) -> Path:
    """The java of JAVA_HOME, or of PATH, that is new enough."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [found] if (found := shutil.which("java")) else []
    for candidate in candidates:
        if (_major(candidate) or 0) >= oldest:
            return Path(candidate)
    seen = f"; too old, or not working: {', '.join(candidates)}" if candidates else ""
    raise JavaNotFound(
        f"{needed_by} needs Java {oldest} or newer: install a JDK (apt install openjdk-17-jdk-headless, "
        f"brew install openjdk@17) and put it into PATH, or set JAVA_HOME{seen}"
    )


def _major(java: str) -> int | None:
    try:
        # macOS has a /usr/bin/java that only says that there is no Java.
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - what the user installed
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(version[1]) if version and told.returncode == 0 else None
