"""Make an archive of what Spark's JVM loads at its start, so that those that tests start have it at once.

`python class_archive.py` runs a small session once, whose JVM writes its classes down at its end, in the environment
whose Spark it is. Another Java, or one with other jars, leaves the archive alone and starts as if there were none.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["ARCHIVE", "reading"]

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# A JVM tells of everything that it cannot put into an archive, or not find there.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_PROGRAM = """
from mqgate.spark.session import session
spark = session("classes", "local[1]")
spark.range(3).selectExpr("id % 2 AS odd").groupBy("odd").count().collect()
spark.stop()
"""


def reading() -> str:
    """The options of a JVM that starts from the archive; none if there is none."""
    return f"-XX:SharedArchiveFile={ARCHIVE} {_QUIET}" if ARCHIVE.is_file() else ""


def make() -> None:
    unfinished = ARCHIVE.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={unfinished} {_QUIET}"
    with tempfile.TemporaryDirectory() as directory:
        # The JVM outlives the program: only when it is through, all ends of the pipe are closed.
        subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "-c", _PROGRAM],
            env=os.environ | {"SPARK_SUBMIT_OPTS": options},
            cwd=directory,
            check=True,
            capture_output=True,
        )
    unfinished.replace(ARCHIVE)


if __name__ == "__main__" and not ARCHIVE.is_file():
    make()
