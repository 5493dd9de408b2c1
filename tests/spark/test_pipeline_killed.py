"""kill -9 of driver, JVM and workers in mid-batch, again and again: figures exact, every message archived once."""

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from event_batches import Teller, event, tell
from kills import is_in_all, kill_all, open_batches, planned
from spark_calls import LEAN

from mqgate.client import Client
from mqgate.core.message import milliseconds
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore

BATCHES, EVENTS_A_BATCH = 800, 20
KILLS = 5
SMALL, LARGE = 5, 400
MOST_STARTS = 3 * KILLS
MINUTE = 60_000
JOB = Path(__file__).with_name("pipeline_job.py")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_pipelines_that_are_killed_in_mid_batch_count_and_archive_once(
    java: Path, client: Client, topic: str, tmp_path: Path
) -> None:
    """Both are hit at least five times; the figures are what was told, and plain readers find each message once."""
    now = milliseconds(datetime.now(UTC))
    first = now - now % MINUTE - 30 * MINUTE
    teller, told = Teller(), Counter[int]()
    batches = []
    for number in range(BATCHES):
        at = first + number % 7 * MINUTE
        told[at] += EVENTS_A_BATCH
        batches.append(teller.batch([event("published", at)] * EVENTS_A_BATCH, sent_at=now))
    tell(client, topic, *batches)
    command = [sys.executable, str(JOB), client.transport.url, topic, str(tmp_path)]
    checkpoints = {name: tmp_path / "checkpoints" / name for name in ("minutes", "archive")}
    log = tmp_path / "job.log"

    kills: Counter[str] = Counter()
    starts, ended = 0, -1
    while ended != 0:
        starts += 1
        assert starts <= MOST_STARTS, log.read_text()
        is_last = all(kills[name] >= KILLS for name in checkpoints)
        before = {name: planned(checkpoint) for name, checkpoint in checkpoints.items()}
        with (
            log.open("w") as output,
            subprocess.Popen([*command, str(LARGE if is_last else SMALL)], env=os.environ | LEAN, stderr=output) as job,  # noqa: S603 - our own job
        ):
            if not is_last and is_in_all(job, checkpoints, before):
                kill_all(job.pid)
        ended = job.returncode
        if ended == -signal.SIGKILL:
            kills.update(name for name, path in checkpoints.items() if open_batches(path) - before[name])

    assert min(kills.values()) >= KILLS, "it was through too early"
    store = StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=False), is_writing=False)
    assert dict(store.select("SELECT at, sum(n) FROM stats_traffic_minute GROUP BY at")) == told
    assert store.select("SELECT count(*), min(sequence), max(sequence) FROM stats_event_batches") == [
        (BATCHES, 1, BATCHES)
    ]
    archived = ds.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table(
        columns=["queue", "offset"]
    )
    places = Counter((row["queue"], row["offset"]) for row in archived.to_pylist())
    assert (len(places), max(places.values())) == (BATCHES, 1)
