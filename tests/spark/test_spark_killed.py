"""kill -9 of driver, JVM and workers in mid-batch, again and again: every row exactly once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from spark_calls import fill

from mqgate.client import Client

COUNT = 15_000
KILLS = 5
PATIENCE = 300.0
JOB = Path(__file__).with_name("copy_job.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_that_is_killed_in_mid_batch_copies_every_message_once(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    """Into files as Spark reads them, and into a topic by message id, whatever moment the kill finds."""
    copy = f"{topic}-copy"
    client.topics.put(copy, {"queues": 4})
    fill(client, topic, COUNT)
    command = [sys.executable, str(JOB), client.transport.url, topic, copy, str(tmp_path)]

    for turn in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as job:  # noqa: S603 - our own job
            # Now the one query, now the other is in mid-batch.
            _wait_for_a_batch(job, tmp_path / f"checkpoint-{turn % 2}")
            _kill_all(job.pid)
    last = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603 - our own job

    assert last.returncode == 0, last.stderr
    files = spark.read.parquet(str(tmp_path / "parquet"))
    assert (files.count(), files.select("id").distinct().count()) == (COUNT, COUNT)
    copied = _rows(spark, client, copy)
    assert len({row.id for row in copied}) == COUNT
    assert Counter(int(bytes(row.body)) for row in copied) == Counter(range(COUNT)), "none twice, none missing"


def _rows(spark: SparkSession, client: Client, topic: str) -> list[Row]:
    reader = spark.read.format("mqgate").options(url=client.transport.url, subscribe=topic)
    return reader.schema("id STRING, body BINARY").load().collect()


def _wait_for_a_batch(job: "subprocess.Popen[bytes]", checkpoint: Path) -> None:
    """Until a batch newer than all that were here is planned, and not yet committed."""
    before = _numbers(checkpoint / "offsets")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert job.poll() is None, f"it ended before it was killed: {job.stderr and job.stderr.read().decode()}"
        open_batches = _numbers(checkpoint / "offsets") - _numbers(checkpoint / "commits") - before
        if open_batches:
            return
        time.sleep(0.002)
    pytest.fail("no batch began")


def _numbers(directory: Path) -> set[int]:
    return {int(path.name) for path in directory.glob("*") if path.name.isdigit()}


def _kill_all(root: int) -> None:
    """The driver, its JVM and its workers; those first who could start others."""
    for pid in [root, *_descendants(root)]:
        # A child may end by itself when its parent is gone.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        # The name between the parentheses may hold anything.
        pid, parent = int(text.partition(" ")[0]), int(text.rpartition(")")[2].split()[1])
        parents.setdefault(parent, []).append(pid)
    found, waiting = [], [root]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found
