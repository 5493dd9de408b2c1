"""kill -9 of driver, JVM and workers in mid-batch, again and again: every row exactly once."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from kills import is_in_all, kill_all, open_batches, planned
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
        before = {query: planned(checkpoint) for query, checkpoint in checkpoints.items()}
        with (
            log.open("w") as output,
            subprocess.Popen([*command, str(LARGE if is_last else SMALL)], env=os.environ | LEAN, stderr=output) as job,  # noqa: S603 - our own job
        ):
            if not is_last and is_in_all(job, checkpoints, before):
                kill_all(job.pid)
        ended = job.returncode
        if ended == -signal.SIGKILL:
            # Only what the dead left behind counts: a batch may have been committed in the last moment.
            kills.update(query for query, path in checkpoints.items() if open_batches(path) - before[query])

    assert min(kills["parquet"], kills["sink"]) >= KILLS, "it was through too early"
    files = spark.read.parquet(str(tmp_path / "parquet"))
    assert (files.count(), files.select("id").distinct().count()) == (COUNT, COUNT)
    copied = _rows(spark, client, copy)
    assert len({row.id for row in copied}) == COUNT
    assert Counter(int(bytes(row.body)) for row in copied) == Counter(range(COUNT)), "none twice, none missing"


def _rows(spark: SparkSession, client: Client, topic: str) -> list[Row]:
    reader = spark.read.format("mqgate").options(url=client.transport.url, subscribe=topic)
    return reader.schema("id STRING, body BINARY").load().collect()
