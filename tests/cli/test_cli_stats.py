"""`mqgate stats`, and the commands of `mqgate pipeline` that do not need Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mqgate.core.message import milliseconds
from mqgate.settings import Settings, SqliteSettings
from mqgate.stats.engine import open_stats
from mqgate.stats.store import Applied, StatsStore
from mqgate.testing.server_process import ServerProcess

HOUR = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return open_stats(Settings(sqlite=SqliteSettings(directory=str(tmp_path))), is_writing=True)


def an_hour_ago() -> int:
    now = milliseconds(datetime.now(UTC))
    return now - now % HOUR - HOUR


def test_hours_are_rolled_up_and_shown(run, store, tmp_path):
    """The reports are shown as a table without empty columns, and as JSON."""
    at = an_hour_ago()
    rows = [(at + minute * 60_000, "orders", "published", "shop", "", "", "", 5, 50, 0) for minute in (0, 1)]
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": rows}, now=datetime.now(UTC), oldest=at)
    rolled = run("pipeline", "rollup", "--data-dir", str(tmp_path))
    assert rolled.exit_code == 0, rolled.output

    server = ServerProcess(tmp_path).start()
    try:
        shown = run("--url", server.url, "stats", "traffic", "--topic", "orders", "--step", "hour")
        as_json = run("--url", server.url, "--json", "stats", "traffic", "--step", "hour", "--by", "producer")
        none = run("--url", server.url, "stats", "lag", "--group", "billing")
    finally:
        server.stop()

    heading, row = shown.stdout.splitlines()
    assert heading.split() == ["AT", "TOPIC", "KIND", "COUNT", "BYTES", "REDELIVERED"]
    assert row.split()[1:] == ["orders", "published", "10", "100", "0"]
    (item,) = json.loads(as_json.stdout)["items"]
    assert (item["producer"], item["count"]) == ("shop", 10)
    assert none.stdout.strip() == "(none)"


def test_missing_statistics_are_reported(mqgate):
    """An empty table would look like a result."""
    result = mqgate("stats", "latency")

    assert result.exit_code == 1
    assert "mqgate pipeline run" in result.stderr


def test_a_backfill_requires_whole_minutes(run, tmp_path):
    """A part of a minute would replace the whole minute."""
    result = run(
        *("pipeline", "backfill", "--data-dir", str(tmp_path)),
        *("--from", "2026-11-16T12:00:30Z", "--to", "2026-11-16T13:00:00Z"),
    )

    assert result.exit_code == 2
    assert "whole minutes" in result.stderr


def test_invalid_settings_are_reported_before_spark_starts(run, tmp_path):
    """A JVM takes seconds to start, and its errors are long."""
    config = tmp_path / "mqgate.toml"
    config.write_text('[stats]\nengine = "oracle"\n')

    result = run("pipeline", "run", "--config", str(config))

    assert result.exit_code == 2
    assert "[stats] engine must be sqlite or postgres" in result.stderr
