"""Look-up of Java and Maven, which the user installs."""

import shutil
from pathlib import Path

from mqgate import java
from mqgate.stack.errors import StackUnavailable

__all__ = ["find_java", "find_maven"]

OLDEST_JAVA = 11


def find_java() -> Path:
    """Return the Java for RocketMQ. Raise StackUnavailable if there is none."""
    try:
        return java.find_java(OLDEST_JAVA, "RocketMQ")
    except java.JavaNotFound as error:
        raise StackUnavailable(str(error)) from error


def find_maven() -> Path:
    """Return Maven from PATH. Raise StackUnavailable if there is none."""
    found = shutil.which("mvn")
    if found is None:
        raise StackUnavailable(
            "Maven downloads RocketMQ once: install it (apt install maven, brew install maven) and put mvn into PATH"
        )
    return Path(found)
