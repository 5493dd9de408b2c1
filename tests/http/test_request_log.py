"""Every log line of a request contains its request id, topic and group, in both dialects."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

CONFIG = """
[logging]
requests = "all"
format = "json"
[[topic]]
name = "orders"
queues = 1
[[producer]]
name = "shop"
topic = "orders"
[[group]]
name = "billing"
topic = "orders"
mode = "queue"
maxAttempts = 1
"""
BILLING = {"topic": "orders", "group": "billing"}


class Served:
    """A gateway whose log can be read after it has stopped."""

    def __init__(self, directory: Path) -> None:
        config = directory / "mqgate.toml"
        config.write_text(CONFIG, "utf-8")
        command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--port", "0", "--config", str(config)]
        command += ["--data-dir", str(directory / "data")]
        self._process = subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own interpreter
        assert self._process.stdout is not None
        greeting = next(line for line in self._process.stdout if line.startswith("mqgate listens"))
        found = re.search(r"http://\S+", greeting)
        assert found is not None
        self.http = httpx.Client(base_url=found[0])

    def stop(self) -> list[dict[str, Any]]:
        """Stop the gateway and return its log."""
        self.http.close()
        self._process.terminate()
        output, _ = self._process.communicate(timeout=30)
        return [json.loads(line) for line in output.splitlines()]

    def lines(self, request_id: str) -> list[dict[str, Any]]:
        """Stop the gateway and return the lines of a request."""
        return [line for line in self.stop() if line.get("request_id") == request_id]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path)
    yield server
    server.stop()


def check(lines: list[dict[str, Any]], events: list[str], fields: dict[str, str]) -> None:
    assert [line["event"] for line in lines] == events
    assert all(line.items() >= fields.items() for line in lines), lines


def test_lines_of_a_native_request_name_topic_and_group(served: Served) -> None:
    """The topic of a group is not in the path; the line about the dead letter is logged below the HTTP layer."""
    served.http.post("/v1/topics/orders/messages", content=b"x")
    receipt = served.http.post("/v1/groups/billing/receive").json()["lease"]["receipt"]

    settled = served.http.post("/v1/groups/billing/nack", json={"receipt": receipt})

    lines = served.lines(settled.headers["x-request-id"])
    check(lines, ["message dead-lettered", "request served"], BILLING)


def test_lines_of_an_mq_request_name_topic_and_group(served: Served) -> None:
    """The dialect has both in its parameters."""
    served.http.post("/mq/produce", data={"producer": "shop", "message": "x"})
    names = {"topic": "orders", "consumer": "billing"}
    fetched = served.http.get("/mq/message", params=names).json()["result"]

    unlocked = served.http.get("/mq/unlock", params={**names, "requestId": fetched["requestId"]})

    lines = served.lines(unlocked.headers["x-request-id"])
    check(lines, ["message dead-lettered", "request served"], BILLING)


def test_lines_of_a_publish_name_the_topic(served: Served) -> None:
    """A producer of the dialect is registered for one topic."""
    native = served.http.post("/v1/topics/orders/messages", content=b"x")
    dialect = served.http.post("/mq/produce", data={"producer": "shop", "message": "x"})

    log = served.stop()
    for response in (native, dialect):
        request_id = response.headers["x-request-id"]
        lines = [line for line in log if line.get("request_id") == request_id]
        check(lines, ["request served"], {"topic": "orders"})
