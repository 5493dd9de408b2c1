"""Finds a Java runtime for RocketMQ brokers and Spark. mqgate never installs one."""

import os
import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["JavaNotFound", "find_java"]


class JavaNotFound(Exception):
    """No Java runtime is new enough. The text says how to install one."""


def find_java(min_version: int, needed_by: str) -> Path:
    """Return the `java` of JAVA_HOME or PATH with at least this version. Raise JavaNotFound if there is none."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [found] if (found := shutil.which("java")) else []
    for candidate in candidates:
        if (_major(candidate) or 0) >= min_version:
            return Path(candidate)
    rejected = f"; too old or not working: {', '.join(candidates)}" if candidates else ""
    raise JavaNotFound(
        f"{needed_by} requires Java {min_version} or newer: install a JDK (apt install openjdk-17-jdk-headless, "
        f"brew install openjdk@17) and put it into PATH, or set JAVA_HOME{rejected}"
    )


def _major(java: str) -> int | None:
    try:
        # The /usr/bin/java of macOS may be a stub that only reports that Java is missing.
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - installed by the user
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', result.stderr)
    return int(version[1]) if version and result.returncode == 0 else None
