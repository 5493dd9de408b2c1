"""The commands `mqgate pipeline reconcile` and `replay`, run in this process with the shared session."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from event_batches import GatewayEvents, event, publish_batches
from pyspark.sql import SparkSession
from spark_calls import fill

from mqgate.cli.main import cli
from mqgate.client import Client
from mqgate.core.message import milliseconds
from mqgate.settings import Settings, SqliteSettings
from mqgate.spark.pipelines import config, hourly_reconciliation
from mqgate.stats.engine import open_stats

Run = Callable[..., Result]


@pytest.fixture
def run(spark: SparkSession, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("replay", "orders", ...)`."""
    monkeypatch.setattr(config, "start", lambda _: config.own_session(spark))
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setattr(hourly_reconciliation, "time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **env: str) -> Result:
        places = ["--data-dir", str(tmp_path / "data"), "--directory", str(tmp_path / "pipelines")]
        command = ["--json", "--url", client.url, "pipeline", *arguments, *places]
        return CliRunner().invoke(cli, command, env={"MQGATE_KEY": None} | env)

    return run


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.stdout, (result.output, result.exception)
    found: list[dict[str, Any]] = json.loads(result.stdout)["items"]
    return found


def test_reconcile_exits_with_1_if_an_hour_is_broken(run: Run, client: Client, topic: str, tmp_path: Path) -> None:
    """A script can detect a broken hour, and the output contains the result."""
    name, events_topic = f"{topic}-one", f"events-{uuid4().hex}"
    for topic_name in (name, events_topic):
        client.topics.put(topic_name, {"queues": 1})
    client.groups.put(name, {"topic": name, "mode": "queue"})
    settings = Settings(sqlite=SqliteSettings(directory=str(tmp_path / "data")))
    watched = [(0, name, name, "", "local:0", 0, 0, 0, 0, 0, 0, 0, None)]
    open_stats(settings, is_writing=True).put({"lag_minute": watched})
    fill(client, name, 2)
    lease = client.receive(name, max=2)["lease"]
    client.ack(name, lease["receipt"])
    at = milliseconds(datetime.now(UTC))
    events = [event("acked", at, name, group=name, queue="local:0", offset=0)]
    publish_batches(client, events_topic, GatewayEvents().batch(events, sent_at=at, last="true"))
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    asked = ("reconcile", "--hour", hour.isoformat(), "--topic", name)

    broken = run(*asked, MQGATE_PIPELINES_EVENTS_TOPIC=events_topic)

    if datetime.now(UTC).hour != hour.hour:
        pytest.skip("the hour ended in the middle of the test")
    (row,) = rows(broken)
    assert (broken.exit_code, row["state"], row["acked"], row["missing"]) == (1, "broken", 1, 1)
    nothing = run("reconcile", "--hour", "2020-01-01T00:00:00Z", "--topic", name)
    assert (nothing.exit_code, rows(nothing)) == (0, [])


def test_replay_reports_what_it_would_send_and_what_it_sent(run: Run, client: Client, topic: str) -> None:
    """A replay continues under the same name, and a dry run sends nothing."""
    client.topics.put(f"{topic}-again", {"queues": 1})
    fill(client, topic, 3, tag="paid")
    fill(client, topic, 2, start=3)
    asked = ("replay", topic, "--to", f"{topic}-again", "--name", "fix", "--where", "tag = 'paid'")

    dry = run(*asked, "--dry-run")
    sent = [run(*asked) for _ in range(2)]

    assert sum(row["messages"] for row in rows(dry)) == 3
    assert [json.loads(line.stdout) for line in sent] == [{"sent": 3}, {"sent": 0}], sent[0].output
    assert client.queues(f"{topic}-again")[0]["max"] == 3
    assert run("replay", topic, "--name", "fix").exit_code == 2
