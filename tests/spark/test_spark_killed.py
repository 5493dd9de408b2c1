"""kill -9 of driver, JVM and workers in mid-batch, again and again: everything is there, and nothing twice.

One driver does all of it at once, because to start one takes longer than what it does: source to Parquet, source to
sink, minute figures, archive and replay are all hit by every kill. What is left after the last one is done here, by the
session that all tests share.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from event_batches import GatewayEvents, event, publish_batches
from killed_job import LARGE, config_of, do_all
from kills import committed, kill_in_all, open_batches
from pyspark.sql import Row, SparkSession
from spark_calls import fill

from mqgate.client import Client
from mqgate.core.message import milliseconds
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore

COUNT = 6_000
BATCHES, EVENTS_A_BATCH = 200, 20
KILLS = 5
# A driver repeats the batch that the last one was killed in. To be killed there once more is as hard as anything; but
# what is repeated for ever tells nothing of what comes behind it.
MOST_IN_A_BATCH = 2
# Spark waits only so long for a Python process to come up: on a busy machine a driver may end without us.
MOST_STARTS = 3 * KILLS
MINUTE = 60_000
JOB = Path(__file__).with_name("killed_job.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_in_mid_batch_loses_nothing_and_repeats_nothing(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    """Each part of it is hit at least five times."""
    for name in ("copy", "again"):
        client.topics.put(f"{topic}-{name}", {"queues": 4})
    ids = fill(client, topic, COUNT)
    events = f"{topic}-events"
    client.topics.put(events, {"queues": 1})
    counts = _tell_events(client, events)

    _kill_again_and_again([client.url, topic, events, str(tmp_path)], tmp_path)
    do_all(spark, config_of(client.url, events, tmp_path, LARGE), topic, LARGE)

    files = spark.read.parquet(str(tmp_path / "parquet"))
    assert (files.count(), files.select("id").distinct().count()) == (COUNT, COUNT)
    copied = _rows(spark, client, f"{topic}-copy")
    assert len({row.id for row in copied}) == COUNT
    assert Counter(int(bytes(row.body)) for row in copied) == Counter(range(COUNT)), "none twice, none missing"
    assert Counter(row.id for row in _rows(spark, client, f"{topic}-again")) == Counter(ids), "replayed as they were"
    store = StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=False), is_writing=False)
    assert dict(store.select("SELECT at, sum(n) FROM stats_traffic_minute GROUP BY at")) == counts
    kept = store.select("SELECT count(*), min(sequence), max(sequence) FROM stats_event_batches")
    assert kept == [(BATCHES, 1, BATCHES)]
    archived = ds.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table(["queue", "offset"])
    places = Counter((row["queue"], row["offset"]) for row in archived.to_pylist())
    assert (len(places), max(places.values())) == (BATCHES, 1), "plain readers find each message once"


def _tell_events(client: Client, topic: str) -> Counter[int]:
    """Events of seven minutes; how many of each."""
    now = milliseconds(datetime.now(UTC))
    first = now - now % MINUTE - 30 * MINUTE
    gateway_events, counts = GatewayEvents(), Counter[int]()
    batches = []
    for number in range(BATCHES):
        at = first + number % 7 * MINUTE
        counts[at] += EVENTS_A_BATCH
        batches.append(gateway_events.batch([event("published", at)] * EVENTS_A_BATCH, sent_at=now))
    publish_batches(client, topic, *batches)
    return counts


def _kill_again_and_again(arguments: list[str], directory: Path) -> None:
    """Until each part was hit often enough. AssertionError if one ran out of work before."""
    checkpoints = {name: directory / "checkpoints" / name for name in ("minutes", "archive", "parquet", "mqgate")}
    progress, begun = directory / "replays" / "again.json", directory / "begun"

    def replayed() -> set[object]:
        """Once anything was sent: where it ends is written down before."""
        text = progress.read_text() if progress.exists() else "{}"
        return {text} if json.loads(text).get("done") else set()

    def at_work(name: str) -> set[object]:
        return {*open_batches(checkpoints[name])} if (begun / name).exists() else set()

    under_way = {name: partial(at_work, name) for name in checkpoints} | {"replay": replayed}
    hits: dict[str, Counter[object]] = {name: Counter() for name in under_way}
    starts = 0
    log = directory / "job.log"
    while any(found.total() < KILLS for found in hits.values()):
        starts += 1
        assert starts <= MOST_STARTS, log.read_text()
        shutil.rmtree(begun, ignore_errors=True)
        enough = {name: {batch for batch in found if found[batch] >= MOST_IN_A_BATCH} for name, found in hits.items()}
        before = {name: committed(path) | enough[name] for name, path in checkpoints.items()} | {"replay": replayed()}
        with log.open("w") as output:
            job = subprocess.Popen([sys.executable, str(JOB), *arguments], stderr=output)  # noqa: S603 - our own job
            # What was hit often enough may have come to its end.
            missed = {name: found for name, found in under_way.items() if hits[name].total() < KILLS}
            kill_in_all(job, missed, before)
        assert job.returncode != 0, f"it was through too early: {hits}"
        if job.returncode == -signal.SIGKILL:
            # Only what the dead left behind counts: a batch may have been committed in the last moment.
            for name, found in under_way.items():
                hits[name].update(found() - before[name])


def _rows(spark: SparkSession, client: Client, topic: str) -> list[Row]:
    reader = spark.read.format("mqgate").options(url=client.url, subscribe=topic)
    return reader.schema("id STRING, body BINARY").load().collect()
