"""Fixtures that run `mqgate` in this process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from supervised import Supervised

from mqgate.cli.main import cli

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Return a function that runs a command without MQGATE_ variables: `run("topic", "list")`."""

    def run(*arguments: str, stdin: bytes = b"", **env: str) -> Result:
        cleared = {"MQGATE_URL": None, "MQGATE_KEY": None}
        return CliRunner().invoke(cli, arguments, input=stdin, env=cleared | env)

    return run


@pytest.fixture
def mqgate(run: Run, gateway_url: str) -> Run:
    """Return a function that runs a command against the running gateway."""
    return lambda *arguments, **options: run("--url", gateway_url, *arguments, **options)


@pytest.fixture
def done(mqgate: Run) -> Callable[..., Any]:
    """Return a function that runs a successful command and returns its JSON output."""

    def done(*arguments: str, **options: Any) -> Any:
        result = mqgate("--json", *arguments, **options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return done


@pytest.fixture
def names(done: Callable[..., Any]) -> tuple[str, str, str]:
    """Create a topic with one queue, its producer and a group in queue mode."""
    suffix = uuid4().hex
    topic, producer, group = f"topic-{suffix}", f"producer-{suffix}", f"group-{suffix}"
    done("topic", "create", topic, "--queues", "1")
    done("producer", "create", producer, "--topic", topic)
    done("group", "create", group, "--topic", topic, "--mode", "queue")
    return topic, producer, group


@pytest.fixture
def workers(done: Callable[..., Any], names: tuple[str, str, str]) -> str:
    """Create a group in message mode on the same topic."""
    group = f"workers-{uuid4().hex}"
    done("group", "create", group, "--topic", names[0])
    return group


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Return a function that starts a supervisor, which is stopped at the end: `supervised(workers=2)`."""
    started: list[Supervised] = []

    def start(*command: str, **options: Any) -> Supervised:
        started.append(Supervised(tmp_path, *command, **options))
        return started[-1].start()

    yield start
    for supervised in started:
        supervised.close()
