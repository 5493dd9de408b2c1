"""The gateway as a single worker on the embedded engine."""

import os
import signal
import sys
import threading

import httpx
import pytest
from supervised import PATIENCE, until

from mqgate.settings import Settings, SettingsInvalid

GATEWAY = (sys.executable, "-P", "-m", "mqgate.cli.main", "serve", "--demo", "--data-dir")


def test_a_killed_gateway_restarts_with_its_data(supervised, tmp_path):
    """The supervisor keeps the socket, so clients wait instead of being refused."""
    it = supervised(*GATEWAY, str(tmp_path / "data"))
    published = httpx.post(f"{it.url}/v1/topics/demo/messages", content=b"hello").raise_for_status().json()

    os.kill(it.events("worker started")[0]["pid"], signal.SIGKILL)
    until(lambda: it.events("worker ended"))
    found = httpx.get(f"{it.url}/v1/topics/demo/messages/{published['id']}", timeout=PATIENCE)

    assert found.json()["body"] == "hello"
    it.tell(signal.SIGTERM)
    assert it.ended() == 0


def test_metrics_and_log_lines_of_a_worker_have_its_number(supervised, tmp_path):
    """A scrape reaches any worker, so counters without the label would be mixed."""
    (tmp_path / "mqgate.toml").write_text('[logging]\nrequests = "all"\n[[topic]]\nname = "orders"\nqueues = 1\n')
    it = supervised(*GATEWAY, str(tmp_path / "data"), "--config", str(tmp_path / "mqgate.toml"))
    httpx.get(f"{it.url}/livez").raise_for_status()

    lines = httpx.get(f"{it.url}/metrics").raise_for_status().text.splitlines()

    assert 'mqgate_requests_total{operation="livez",status="200",worker="1"} 1.0' in lines
    assert all('worker="1"' in line for line in lines if not line.startswith("#"))
    assert [event["worker"] for event in it.events("entry registered")] == [1]


def test_events_of_a_worker_have_its_number(supervised, tmp_path):
    """The loss of one worker must not be attributed to another."""
    it = supervised(*GATEWAY, str(tmp_path / "data"))
    httpx.post(f"{it.url}/v1/topics/demo/messages", content=b"hello").raise_for_status()

    def gateway_names():
        queues = httpx.get(f"{it.url}/v1/topics/mqgate_events/queues").json().get("items", [])
        pages = [
            httpx.get(f"{it.url}/v1/topics/mqgate_events/queues/{queue['queue']}/messages", params={"offset": 0}).json()
            for queue in queues
        ]
        return [message["properties"]["gateway"] for page in pages for message in page["messages"]]

    until(gateway_names)
    assert all(name.endswith("-1") for name in gateway_names())


def test_a_parked_receive_is_answered_when_its_gateway_stops(supervised, tmp_path):
    """The process must not wait for the end of the long poll."""
    it = supervised(*GATEWAY, str(tmp_path / "data"))
    url, responses = f"{it.url}/v1/groups/demo-workers/receive", []
    waiting = threading.Thread(
        target=lambda: responses.append(httpx.post(url, json={"wait": 60}, timeout=2 * PATIENCE))
    )
    waiting.start()
    until(lambda: 'mqgate_parked_requests{worker="1"} 1.0' in httpx.get(f"{it.url}/metrics").text)

    it.tell(signal.SIGTERM)
    waiting.join()

    (response,) = responses
    assert (response.status_code, response.json()["messages"]) == (200, [])
    assert response.headers["connection"] == "close"
    assert it.ended() == 0


def test_a_gateway_that_refuses_to_start_reports_the_reason_and_is_not_restarted(supervised, tmp_path):
    """A restart does not correct invalid settings."""
    it = supervised(*GATEWAY, str(tmp_path / "data"), "--host", "0.0.0.0")  # noqa: S104 - that it may not is the point

    assert it.ended() == 2
    assert (tmp_path / "err").read_text().startswith("error: [http] host 0.0.0.0 is not loopback and there is no key")
    assert it.events("worker ended") == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "[messages], [leases], [control]"),
        (
            {"MQGATE_MESSAGES_ENGINE": "rocketmq", "MQGATE_ROCKETMQ_NAME_SERVERS": "10.0.0.1:9876"},
            "[leases], [control]",
        ),
        (
            {"MQGATE_CONTROL_ENGINE": "postgres", "MQGATE_POSTGRES_URL": "postgresql://10.0.0.1/a"},
            "[messages], [leases]",
        ),
    ],
    ids=["all", "leases and control", "log and leases"],
)
def test_several_workers_are_refused_while_an_engine_is_embedded(given, named):
    """Two processes on one data directory would grant the same leases."""
    with pytest.raises(SettingsInvalid) as refused:
        Settings.load(None, environment={"MQGATE_HTTP_WORKERS": "2", **given})

    assert refused.value.faults == [
        f"[http] workers: the embedded engine supports one process; choose another engine for {named}"
    ]


def test_the_command_reports_refused_workers(run, tmp_path):
    """The error is reported before any store is opened."""
    refused = run("serve", "--workers", "2", "--data-dir", str(tmp_path / "data"))

    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: [http] workers: the embedded engine supports one process")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("count", [0, -1])
def test_at_least_one_worker_is_needed(count):
    """Without a worker, no process serves."""
    with pytest.raises(SettingsInvalid, match="workers"):
        Settings.load(None, environment={}, flags={"http.workers": count})
