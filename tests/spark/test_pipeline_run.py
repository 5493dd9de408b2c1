"""`mqgate pipeline run` as a process: its figures, its state, and its end."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from event_batches import GatewayEvents, event, publish_batches

from mqgate.client import Client
from mqgate.core.errors import MqgateError
from mqgate.core.message import milliseconds
from mqgate.settings import Settings, SqliteSettings
from mqgate.stats import reports
from mqgate.stats.engine import open_stats

MINUTE = 60_000
PATIENCE = 300.0


def states(settings: Settings) -> dict[str, dict[str, Any]]:
    try:
        return {row["pipeline"]: row for row in reports.pipelines(open_stats(settings, is_writing=False))}
    except MqgateError:
        return {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_command_counts_reports_its_state_and_stops(java: Path, client: Client, topic: str, tmp_path: Path) -> None:
    """One command runs live queries and scheduled jobs, and leaves no process running."""
    now = milliseconds(datetime.now(UTC))
    then = now - now % MINUTE - 5 * MINUTE + MINUTE // 2
    publish_batches(client, topic, GatewayEvents().batch([event("published", then)] * 5, sent_at=now))
    command = [sys.executable, "-m", "mqgate.cli.main", "--url", client.url, "pipeline", "run"]
    command += ["--data-dir", str(tmp_path / "data"), "--directory", str(tmp_path / "pipelines")]
    environment = {"MQGATE_PIPELINES_EVENTS_TOPIC": topic, "MQGATE_PIPELINES_TRIGGER": "0.5"}
    settings = Settings(sqlite=SqliteSettings(directory=str(tmp_path / "data")))
    log = tmp_path / "run.log"

    with (
        log.open("w") as output,
        subprocess.Popen(command, env=os.environ | environment, stderr=output, cwd=tmp_path) as job,  # noqa: S603 - our own command
    ):
        deadline = time.monotonic() + PATIENCE
        while not _has_counted(states(settings)):
            assert job.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        job.send_signal(signal.SIGTERM)
        assert job.wait(PATIENCE) == 0, log.read_text()

    store = open_stats(settings, is_writing=False)
    assert store.select("SELECT at, n FROM stats_traffic_minute") == [(then - MINUTE // 2, 5)]
    pipelines = states(settings)
    assert {name: pipelines[name]["state"] for name in ("minutes", "archive")} == {
        "minutes": "stopped",
        "archive": "stopped",
    }
    assert list((tmp_path / "pipelines" / "archive").glob(f"topic={topic}/hour=*/*.parquet"))


def _has_counted(pipelines: dict[str, dict[str, Any]]) -> bool:
    """Return whether events are counted and archived, and the scheduled jobs have run."""
    if not {"minutes", "archive", "rollup", "tidy"} <= pipelines.keys():
        return False
    return all(pipelines[name]["batch"] is not None for name in ("minutes", "archive"))
