"""Create archives of the classes that JVMs load at their start, so that JVMs of tests start faster.

`python class_archive.py broker` runs a broker once, `python class_archive.py spark` a small Spark session. The JVM
writes the archive when it exits, into the environment of the tests. A JVM of another version, or with other jars,
ignores it.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mqgate.stack import BrokerSpec, Stack
from mqgate.stack.broker_spec import SMALL_HEAP

__all__ = ["BROKER", "LEAN_JAVA", "SPARK", "reading"]

BROKER, SPARK = (Path(sys.prefix) / f"{name}-classes.jsa" for name in ("broker", "spark"))
# JVMs compile half-way, and take the classes of released jars for what they are.
LEAN_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
# A JVM tells of everything that it cannot put into an archive, or not find there.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_PROGRAM = """
from mqgate.spark.session import session
spark = session("classes", "local[1]")
spark.range(3).selectExpr("id % 2 AS odd").groupBy("odd").count().collect()
spark.stop()
"""


def reading(archive: Path) -> str:
    """Return the JVM options that use the archive, or none if it does not exist."""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}" if archive.is_file() else ""


def _run_broker(options: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        stack = Stack(Path(directory))
        try:
            stack.up((BrokerSpec(name="classes", java_options=(*SMALL_HEAP, *options.split())),))
            stack.stop("classes")
        finally:
            stack.down()


def _run_spark(options: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        # The JVM outlives the program: only when it is through, all ends of the pipe are closed.
        subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "-c", _PROGRAM],
            env=os.environ | {"SPARK_SUBMIT_OPTS": options},
            cwd=directory,
            check=True,
            capture_output=True,
        )


def make(archive: Path, run: Callable[[str], None]) -> None:
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    run(f"-XX:ArchiveClassesAtExit={unfinished} {_QUIET}")
    unfinished.replace(archive)


if __name__ == "__main__":
    os.environ["JDK_JAVA_OPTIONS"] = LEAN_JAVA
    archive, run = {"broker": (BROKER, _run_broker), "spark": (SPARK, _run_spark)}[sys.argv[1]]
    if not archive.is_file():
        make(archive, run)
