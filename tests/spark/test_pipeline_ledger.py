"""From a request to a row: the figures equal the counts of the clients, on both engines."""

import math
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_calls import fill

from mqgate.client import Client
from mqgate.settings import Settings
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.hourly_reconciliation import reconcile_hour
from mqgate.spark.pipelines.queries import start_minutes
from mqgate.stats.buckets import bucket_of, quantiles, upper_ms
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore
from mqgate.testing.server_process import ServerProcess
from production_set import as_environment, on_production

MESSAGES = 300
GROUPS = {"singles": "message", "batches": "queue"}
PATIENCE = 120.0
WAIT = 3.0
Ledger = Counter[tuple[str, str]]
# Of each delivery to the group in queue mode how long after the publish it was, at least and at most.
Waits = list[tuple[float, float]]


@pytest.fixture(params=["sqlite", pytest.param("rocketmq", marks=[pytest.mark.rocketmq, pytest.mark.redis])])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """Start a separate gateway, so that its events topic contains no other events."""
    if request.param == "sqlite":
        server = ServerProcess(tmp_path / "data").start()
        yield server
        server.stop()
        return
    servers = [request.getfixturevalue(name) for name in ("rocketmq", "redis", "postgres")]
    with on_production(Settings(), *servers) as settings:
        server = ServerProcess(tmp_path / "data", **as_environment(settings)).start()
        yield server
        server.stop()


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True), is_writing=True)


def work(client: Client, waits: Waits) -> Ledger:
    """Publish, receive, ack, and nack some messages. Return the confirmed counts by group and kind."""
    client.topics.put("orders", {"queues": 4})
    for group, mode in GROUPS.items():
        client.groups.put(group, {"topic": "orders", "mode": mode, "backoff": ["0s"]})
    ledger: Ledger = Counter({("", "published"): len(fill(client, "orders", MESSAGES))})
    client.publish("orders", "twice", idempotency_key="k")
    client.publish("orders", "twice", idempotency_key="k")
    ledger["", "published"] += 1
    # So that how long a message waits is more than how long an answer takes.
    time.sleep(WAIT)
    consume(client, ledger, waits, nacked=20)
    return ledger


def consume(client: Client, ledger: Ledger, waits: Waits, nacked: int = 0) -> None:
    """Until nothing is left for either group; the first few of single messages are given back once."""
    while client.lag("singles")["lag"]:
        found = [message["receipt"] for message in client.receive("singles", max=32)["messages"]]
        ledger["singles", "delivered"] += len(found)
        refused, done = found[:nacked], found[nacked:]
        nacked -= len(refused)
        if refused:
            client.nack_all("singles", refused)
            ledger["singles", "nacked"] += len(refused)
        if done:
            client.ack_all("singles", done)
            ledger["singles", "acked"] += len(done)
    carried: list[str] = []
    while client.lag("batches")["lag"]:
        began = time.time()
        response = client.receive("batches", max=32, ack=carried)
        ended = time.time()
        stored = [datetime.fromisoformat(message["storedAt"]).timestamp() for message in response["messages"]]
        waits += [((began - at) * 1000, (ended - at) * 1000) for at in stored]
        ledger["batches", "delivered"] += len(response["messages"])
        ledger["batches", "acked"] += len(response["messages"])
        carried = [response["lease"]["receipt"]] if "lease" in response else []


def counted(store: StatsStore) -> Ledger:
    rows = store.select('SELECT "group", kind, sum(n) FROM stats_traffic_minute GROUP BY "group", kind')
    return Counter({(group, kind): int(n) for group, kind, n in rows})


def assert_quantiles_fit(store: StatsStore, waits: Waits) -> None:
    """Those of the tables lie no further than a bucket from what the client saw, whatever it could not see."""
    rows = store.select(
        "SELECT bucket, sum(n) FROM stats_latency_minute "
        "WHERE \"group\" = 'batches' AND measure = 'delivery' GROUP BY bucket"
    )
    shares = (0.1, 0.5, 0.9, 0.99)
    for share, found in zip(shares, quantiles({bucket: int(n) for bucket, n in rows}, shares), strict=True):
        least, most = (sorted(latencies)[math.ceil(share * len(waits)) - 1] for latencies in zip(*waits, strict=True))
        assert found is not None
        # A millisecond: clocks are read in whole ones.
        low, high = upper_ms(bucket_of(max(int(least) - 1, 0)) - 1), upper_ms(bucket_of(math.ceil(most) + 1))
        assert low <= found <= high, (share, least, found, most)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_figures_equal_the_counts_of_a_client(
    spark: SparkSession, server: ServerProcess, store: StatsStore, tmp_path: Path
) -> None:
    """Counts are exact, latencies are within a bucket, and the hour is clean, also after a kill."""
    config = PipelineConfig(
        url=server.url, directory=tmp_path, trigger=timedelta(milliseconds=200), grace=timedelta(seconds=3)
    )
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    with Client(server.url) as client:
        waits: Waits = []
        ledger = work(client, waits)
        query = start_minutes(spark, config, store)
        deadline = time.monotonic() + PATIENCE
        while counted(store) != ledger:
            query.processAllAvailable()
            assert time.monotonic() < deadline, (counted(store), ledger)
            time.sleep(0.2)
        query.stop()
        assert_quantiles_fit(store, waits)
        judged = {row["group"]: row for row in reconcile_hour(spark, config, store, hour, ["orders"])}

        fill(client, "orders", MESSAGES, start=MESSAGES)
        server.kill()
        server.start()
        consume(client, Counter(), [])
        after = reconcile_hour(spark, config, store, hour, ["orders"])

    if datetime.now(UTC) - hour < timedelta(hours=1):
        published = MESSAGES + 1
        assert {
            group: (row["state"], row["published"], row["acked"]) for group, row in judged.items()
        } == dict.fromkeys(GROUPS, ("clean", published, published))
    assert {row["group"]: row["state"] for row in after} == dict.fromkeys(GROUPS, "clean"), after
