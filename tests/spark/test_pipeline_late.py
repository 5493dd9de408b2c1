"""Late events and wrong clocks, with gateways that are really disconnected or wrong."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_calls import fill

from mqgate.client import Client
from mqgate.core.message import milliseconds
from mqgate.settings import Settings
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.queries import start_minutes
from mqgate.stack import Stack
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore
from mqgate.testing.server_process import ServerProcess
from production_set import as_environment, on_production
from skewed_clock import skewed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CUT_OFF, AHEAD = timedelta(minutes=10), timedelta(minutes=2)
MINUTE = 60_000
PATIENCE = 120.0


@contextmanager
def serving(settings: Settings, directory: Path, off_by: timedelta, flush_interval: float) -> Iterator[ServerProcess]:
    environment = {"MQGATE_EVENTS_GATEWAY": directory.name, "MQGATE_EVENTS_FLUSH_INTERVAL": str(flush_interval)}
    server = ServerProcess(directory, **as_environment(settings), **skewed(off_by), **environment).start()
    try:
        yield server
    finally:
        # One that stands still hears nothing.
        server.process.send_signal(signal.SIGCONT)
        server.stop()


def test_a_gateway_cut_off_for_ten_minutes_and_one_two_minutes_ahead_end_in_the_right_minute(
    spark: SparkSession, rocketmq: Stack, redis: Stack, postgres: Stack, tmp_path: Path
) -> None:
    """What one of them knew while it stood still is counted when it happened; the other's by the log's clock.

    Ten minutes pass for a gateway that is stopped and then has its clock, which was that much behind, set right.
    """
    store = StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True), is_writing=True)

    def counted() -> dict[int, int]:
        return dict(store.select("SELECT at, sum(n) FROM stats_traffic_minute WHERE kind = 'published' GROUP BY at"))

    with (
        on_production(Settings(), rocketmq, redis, postgres) as settings,
        serving(settings, tmp_path / "ahead", AHEAD, 0.1) as ahead,
        # It comes to tell before it is stopped only if that takes a minute.
        serving(settings, tmp_path / "lost", -CUT_OFF, 60.0) as lost,
        Client(ahead.url) as there,
        Client(lost.url) as here,
    ):
        there.topics.put("orders", {"queues": 2})
        _in_mid_minute()
        now = milliseconds(datetime.now(UTC))
        minute = now - now % MINUTE
        early = minute - CUT_OFF // timedelta(milliseconds=1)
        fill(here, "orders", 30)
        os.kill(lost.process.pid, signal.SIGSTOP)
        fill(there, "orders", 50)
        config = PipelineConfig(url=ahead.url, directory=tmp_path, trigger=timedelta(milliseconds=200))
        query = start_minutes(spark, config, store)
        deadline = time.monotonic() + PATIENCE
        while not counted():
            query.processAllAvailable()
            assert time.monotonic() < deadline
        assert counted() == {minute: 50}, "of a clock that is two minutes ahead"

        os.kill(lost.process.pid, signal.SIGUSR1)
        os.kill(lost.process.pid, signal.SIGCONT)
        fill(here, "orders", 1)
        lost.stop()
        while sum(counted().values()) < 81:
            query.processAllAvailable()
            assert time.monotonic() < deadline, counted()
        query.stop()

    found = counted()
    assert found.pop(early) == 30
    assert found.pop(minute) >= 50
    assert sum(found.values()) <= 1, "what it did when it was back, unless that was in the same minute"
    assert store.select("SELECT * FROM stats_late") == []


def _in_mid_minute() -> None:
    """Wait while a minute is about to end, so that what is done now is done in one."""
    while time.time() % 60 > 50:
        time.sleep(0.2)
