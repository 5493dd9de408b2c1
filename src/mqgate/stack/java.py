"""Finding Java and Maven; they are never installed by us."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from mqgate.stack.errors import StackUnavailable

__all__ = ["find_java", "find_maven"]

OLDEST_JAVA = 11


def find_java() -> Path:
    """The java of JAVA_HOME, or of PATH, that is new enough; StackUnavailable if there is none."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [found] if (found := shutil.which("java")) else []
    for candidate in candidates:
        if (_major(candidate) or 0) >= OLDEST_JAVA:
            return Path(candidate)
    seen = f"; too old, or not working: {', '.join(candidates)}" if candidates else ""
    raise StackUnavailable(
        f"RocketMQ needs Java {OLDEST_JAVA} or newer: install a JDK (apt install openjdk-17-jdk-headless, "
        f"brew install openjdk@17) and put it into PATH, or set JAVA_HOME{seen}"
    )


def find_maven() -> Path:
    """Maven of PATH; StackUnavailable if there is none."""
    found = shutil.which("mvn")
    if found is None:
        raise StackUnavailable(
            "RocketMQ's jars are fetched by Maven, once: install it (apt install maven, brew install maven) "
            "and put mvn into PATH"
        )
    return Path(found)


def _major(java: str) -> int | None:
    try:
        # macOS has a /usr/bin/java that only says that there is no Java.
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - what the user installed
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(version[1]) if version and told.returncode == 0 else None
