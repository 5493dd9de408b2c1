"""kill -9 of driver, JVM and workers in mid-batch, again and again: every row exactly once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from spark_calls import LEAN, fill

from mqgate.client import Client

COUNT = 15_000
KILLS = 5
# Small while it is killed, so that neither query runs out of messages before its last kill; large for the run that
# is to reach the end.
SMALL, LARGE = 300, 5_000
# Spark waits only so long for a Python process to come up: on a busy machine a driver may end without us.
MOST_STARTS = 2 * KILLS
PATIENCE = 300.0
JOB = Path(__file__).with_name("copy_job.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_that_is_killed_in_mid_batch_copies_every_message_once(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    """Into files as Spark reads them, and into a topic by message id: both queries are hit at least five times."""
    copy = f"{topic}-copy"
    client.topics.put(copy, {"queues": 4})
    fill(client, topic, COUNT)
    command = [sys.executable, str(JOB), client.transport.url, topic, copy, str(tmp_path)]
    checkpoints = {"parquet": tmp_path / "checkpoint-0", "sink": tmp_path / "checkpoint-1"}
    log = tmp_path / "job.log"

    kills: Counter[str] = Counter()
    starts, ended = 0, -1
    while ended != 0:
        starts += 1
        assert starts <= MOST_STARTS, log.read_text()
        is_last = all(kills[query] >= KILLS for query in checkpoints)
        before = {query: _planned(checkpoint) for query, checkpoint in checkpoints.items()}
        with (
            log.open("w") as output,
            subprocess.Popen([*command, str(LARGE if is_last else SMALL)], env=os.environ | LEAN, stderr=output) as job,  # noqa: S603 - our own job
        ):
            if not is_last and _is_in_both(job, checkpoints, before):
                _kill_all(job.pid)
        ended = job.returncode
        if ended == -signal.SIGKILL:
            # Only what the dead left behind counts: a batch may have been committed in the last moment.
            kills.update(query for query, path in checkpoints.items() if _open_batches(path) - before[query])

    assert min(kills["parquet"], kills["sink"]) >= KILLS, "it was through too early"
    files = spark.read.parquet(str(tmp_path / "parquet"))
    assert (files.count(), files.select("id").distinct().count()) == (COUNT, COUNT)
    copied = _rows(spark, client, copy)
    assert len({row.id for row in copied}) == COUNT
    assert Counter(int(bytes(row.body)) for row in copied) == Counter(range(COUNT)), "none twice, none missing"


def _rows(spark: SparkSession, client: Client, topic: str) -> list[Row]:
    reader = spark.read.format("mqgate").options(url=client.transport.url, subscribe=topic)
    return reader.schema("id STRING, body BINARY").load().collect()


def _is_in_both(
    job: "subprocess.Popen[bytes]", checkpoints: Mapping[str, Path], before: Mapping[str, set[int]]
) -> bool:
    """Wait until each query has a batch that was not there before, planned and not yet committed; False: it ended."""
    deadline = time.monotonic() + PATIENCE
    while not all(_open_batches(checkpoint) - before[query] for query, checkpoint in checkpoints.items()):
        if job.poll() is not None:
            return False
        assert time.monotonic() < deadline, "no batch began"
        time.sleep(0.02)
    return True


def _open_batches(checkpoint: Path) -> set[int]:
    return _planned(checkpoint) - _numbers(checkpoint / "commits")


def _planned(checkpoint: Path) -> set[int]:
    return _numbers(checkpoint / "offsets")


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
