"""Workers that are told to stop, workers that are killed, and gateways that restart under them."""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mqgate.client import Client
from mqgate.testing.server_process import ServerProcess

PROGRAM = str(Path(__file__).with_name("worker_program.py"))
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def group(client: Client) -> str:
    """Create a topic and a group in message mode, which have the same name."""
    return _create(client)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def start(log: Path) -> Iterator[Start]:
    """Return a function that starts a worker, all of which are killed at the end."""
    started = []

    def start(url: str, group: str, *, duration: float = 0.0, visibility: float = 30.0) -> subprocess.Popen[bytes]:
        command = [sys.executable, PROGRAM, url, group, str(log), str(duration), str(visibility)]
        started.append(subprocess.Popen(command))  # noqa: S603 - our own interpreter
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def _create(client: Client) -> str:
    name = f"work-{uuid4().hex}"
    client.topics.put(name, {"queues": 2})
    client.groups.put(name, {"topic": name, "backoff": ["0s"]})
    return name


def _publish(client: Client, topic: str, count: int) -> None:
    client.publish_batch(topic, [{"body": str(number)} for number in range(count)])


def _lines(log: Path, what: str) -> list[str]:
    return [line.split()[1] for line in log.read_text().splitlines() if line.startswith(what)]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.02)


def test_sigterm_loses_and_repeats_nothing(client, group, gateway_url, log, start):
    """A deployment replaces workers while they work."""
    _publish(client, group, 40)
    for _ in range(3):
        ended = len(_lines(log, "end"))
        worker = start(gateway_url, group, duration=0.1)
        _until(lambda ended=ended: len(_lines(log, "end")) > ended)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        assert Counter(_lines(log, "begin")) == Counter(_lines(log, "end"))

    start(gateway_url, group)
    _until(lambda: client.lag(group)["lag"] == 0)

    assert Counter(_lines(log, "end")) == Counter(map(str, range(40)))


def test_the_messages_of_a_killed_worker_move_on_within_one_lease(client, group, gateway_url, log, start):
    """Nothing waits for a process that is gone."""
    _publish(client, group, 8)
    killed = start(gateway_url, group, duration=600, visibility=2)
    _until(lambda: len(_lines(log, "begin")) == 4)
    killed.kill()
    began = time.monotonic()

    start(gateway_url, group)
    _until(lambda: client.lag(group)["lag"] == 0)

    assert set(_lines(log, "end")) == set(map(str, range(8)))
    # Far below the 600 s of a handler; the process itself takes a part of it to start.
    assert time.monotonic() - began < 30


def test_a_worker_outlives_restarts_of_its_gateway(tmp_path, log, start):
    """Every message is handled, and no handler sees an error of the network."""
    server = ServerProcess(tmp_path / "data").start()
    with Client(server.url) as client:
        group = _create(client)
        worker = start(server.url, group, duration=0.01)
        for number in range(3):
            _publish(client, group, 100)
            _until(lambda number=number: len(set(_lines(log, "end"))) > 20 * (number + 1) or number > 0)
            server.kill()
            server.start()
        _until(lambda: client.lag(group)["lag"] == 0)

        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0

    assert set(_lines(log, "end")) == set(map(str, range(100)))
    assert len(_lines(log, "end")) >= 300
    assert set(_lines(log, "begin")) == set(_lines(log, "end"))
    server.stop()
