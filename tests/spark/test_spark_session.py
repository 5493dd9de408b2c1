"""The session: usable without configuration, and configurable by the user."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark_calls import until

from class_archive import LEAN_JAVA, SPARK, reading
from mqgate.spark.progress import ProgressLine, progress_text
from mqgate.spark.session import PysparkMissing, session

JOB = Path(__file__).with_name("session_job.py")


def progress(**given: Any) -> dict[str, Any]:
    return {"name": None, "batchId": 7, "numInputRows": 1200, "processedRowsPerSecond": 400.0, "sources": [], **given}


def offsets(done: object, end: object) -> dict[str, str]:
    return {"endOffset": json.dumps(done), "latestOffset": json.dumps(end)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.execution.arrow.pyspark.enabled", "true"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
    ],
)
def test_a_session_has_safe_defaults(spark: SparkSession, name: str, value: str) -> None:
    """It accepts no remote connections and uses UTC."""
    assert spark.conf.get(name) == value


@pytest.mark.parametrize("option", ["url", "key", "accessKey", "secretKey", "securityToken", "password"])
def test_secrets_are_hidden_in_plans(spark: SparkSession, option: str) -> None:
    """The default pattern of Spark does not match the options of mqgate, and a URL may contain a password."""
    view = f"CREATE TEMPORARY VIEW orders_view USING mqgate OPTIONS ({option} 'swordfish', subscribe 'orders')"

    (plan,) = spark.sql(f"EXPLAIN EXTENDED {view}").collect()

    assert "orders" in plan[0]
    assert "swordfish" not in plan[0]


def test_a_program_of_its_own_gets_a_session(java: Path, tmp_path: Path) -> None:
    """With a JAVA_HOME that leads nowhere, on a terminal: its own words win, the rest is as it should be."""
    removed = ("JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= {"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": f"{java.parent}:/usr/bin:/bin"}
    command = [sys.executable, str(JOB), str(tmp_path), f"{LEAN_JAVA} {reading(SPARK)}"]
    ours, theirs = pty.openpty()

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs) as job:  # noqa: S603 - ours
        os.close(theirs)
        shown = _read(ours)
        assert job.stdout is not None
        output = job.stdout.read()

    assert job.returncode == 0, shown
    assert json.loads(output) == {
        "zone": "Europe/Berlin",
        "worker": sys.executable,
        "ui": None,
        "host": "127.0.0.1",
        "java_home_is_kept": True,
        "same": True,
    }
    assert "batch 0: 3 rows, " in shown
    lines = [line for line in shown.replace("\x1b[K", "").split("\r") if line.strip()]
    # The JVM itself warns of options that Spark's launcher always gives.
    rest = [line.strip() for line in lines if "batch 0: 3 rows" not in line and "WARNING: " not in line]
    assert rest == ["a worker warned"]


def _read(descriptor: int) -> str:
    """All that a terminal shows until its last writer is gone."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 4096)
        except OSError:  # how Linux tells the end of a terminal
            part = b""
        if not part:
            os.close(descriptor)
            return b"".join(parts).decode()
        parts.append(part)


def test_a_missing_java_is_reported_with_the_remedy(tmp_path: Path) -> None:
    """Spark itself only reports that the Java gateway process exited."""
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    program = "from mqgate.spark.session import session; session()"

    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert "JavaNotFound: Spark requires Java 17 or newer: install a JDK" in done.stderr


def test_a_missing_pyspark_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is an extra, and the error names it."""
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    with pytest.raises(PysparkMissing, match=r'pip install "mqgate\[spark\]"'):
        session()


def test_progress_is_shown_in_one_line() -> None:
    """It has the size, the speed and the remaining time over all queues, including new ones."""
    source = offsets(
        {"orders": {"local:0": 10, "local:1": 5}}, {"orders": {"local:0": 510, "local:1": 5, "local:2": 100}}
    )

    assert progress_text(progress(sources=[source])) == "batch 7: 1,200 rows, 400 rows/s, 1.5 s behind"


def test_progress_without_a_speed_shows_rows() -> None:
    """An empty batch has no speed, and a backlog of zero is not shown."""
    source = offsets({"orders": {"local:0": 10}}, {"orders": {"local:0": 3010}})
    still = progress(name="copy", numInputRows=0, processedRowsPerSecond=float("nan"))

    assert progress_text(still | {"sources": [source]}) == "copy: batch 7: 0 rows, 0 rows/s, 3,000 rows behind"
    assert progress_text(still) == "copy: batch 7: 0 rows, 0 rows/s"


@pytest.mark.parametrize("end", ["null", "None", '{"logOffset": "x"}', "[1]"])
def test_the_backlog_of_other_sources_is_not_shown(end: str) -> None:
    """Offsets of other sources may have any format."""
    source = {"endOffset": '{"logOffset": 1}', "latestOffset": end}

    assert progress_text(progress(sources=[source])) == "batch 7: 1,200 rows, 400 rows/s"


def test_the_last_progress_of_a_query_stays_visible(spark: SparkSession, tmp_path: Path) -> None:
    """The line is overwritten while a query runs, and ended with it."""
    terminal = io.StringIO()
    listener = ProgressLine(terminal)
    (tmp_path / "lines").mkdir()
    for name in ("one", "two"):
        (tmp_path / "lines" / name).write_text("a\nb\n", "utf-8")
    spark.streams.addListener(listener)
    try:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "lines"))
        query = lines.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

        until(lambda: terminal.getvalue().endswith("\n"))
    finally:
        spark.streams.removeListener(listener)

    first, second = terminal.getvalue().removesuffix("\n").split("\r\x1b[K")[1:]
    assert (first[:14], second[:14]) == ("batch 0: 2 row", "batch 1: 2 row")
