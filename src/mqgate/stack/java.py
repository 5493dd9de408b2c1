"""Finding Java and Maven; they are never installed by us."""

import shutil
from pathlib import Path

from mqgate import java
from mqgate.stack.errors import StackUnavailable

__all__ = ["find_java", "find_maven"]

OLDEST_JAVA = 11


def find_java() -> Path:
    """The Java for RocketMQ; StackUnavailable if there is none."""
    try:
        return java.find_java(OLDEST_JAVA, "RocketMQ")
    except java.JavaNotFound as error:
        raise StackUnavailable(str(error)) from error


def find_maven() -> Path:
    """Maven of PATH; StackUnavailable if there is none."""
    found = shutil.which("mvn")
    if found is None:
        raise StackUnavailable(
            "RocketMQ's jars are fetched by Maven, once: install it (apt install maven, brew install maven) "
            "and put mvn into PATH"
        )
    return Path(found)
