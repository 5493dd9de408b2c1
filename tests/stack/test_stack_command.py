"""`mqgate stack` as a new user runs it."""

import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mqgate.cli.stack import configuration
from mqgate.settings import Settings
from mqgate.stack import Stack
from mqgate.stack.part import Kind, Part, save_parts

NO_JAVA = {"PATH": "", "JAVA_HOME": None}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("rocketmq")  # skips, or fails in CI, where there is no Java
def test_a_stack_starts_shows_its_state_and_stops(run: Callable[..., Any], directory: Path) -> None:
    """Three commands are enough, and each may be repeated."""
    first = run("up")
    assert first.returncode == 0, first.stderr
    result = json.loads(run("status", "--json").stdout)
    again = run("up", "--json")
    stack = Stack.open(directory)

    assert tomllib.loads(first.stdout) == {
        "messages": {"engine": "rocketmq"},
        "rocketmq": {"name_servers": [stack.name_server]},
    }
    assert Settings.load(directory / "mqgate.toml", {}).rocketmq.name_servers == (stack.name_server,)
    assert [(part["name"], part["state"]) for part in result["parts"]] == [
        ("namesrv", "ready"),
        ("broker-a", "ready"),
        ("broker-b", "ready"),
    ]
    assert "is already running" in again.stderr
    assert json.loads(again.stdout) == result

    assert run("down").stdout == "3 servers stopped\n"
    assert run("status").returncode == 1
    assert run("down").stdout == "no server was running\n"


@pytest.mark.parametrize(
    ("extras", "engines"),
    [
        ((), ("sqlite", "sqlite")),
        (("redis",), ("redis", "sqlite")),
        (("postgres",), ("sqlite", "postgres")),
        (("redis", "postgres", "proxy"), ("redis", "postgres")),
    ],
)
def test_the_printed_configuration_uses_all_started_servers(
    tmp_path: Path, extras: Sequence[Kind], engines: tuple[str, str]
) -> None:
    """A user who starts Redis wants the gateway to use it."""
    kinds: dict[str, Kind] = {"namesrv": "name-server", **{extra: extra for extra in extras}}
    ports = range(9_001, 9_999)
    parts = [
        Part(name=name, kind=kind, port=port, command=(), ready_line="")
        for port, (name, kind) in zip(ports, kinds.items(), strict=False)
    ]
    save_parts(tmp_path / "stack.json", {part.name: part for part in parts})
    stack = Stack.open(tmp_path)
    file = tmp_path / "mqgate.toml"

    file.write_text(configuration(stack), "utf-8")

    settings = Settings.load(file, {})
    assert (settings.messages.engine, settings.rocketmq.name_servers) == ("rocketmq", (stack.name_server,))
    assert (settings.leases.engine, settings.control.engine) == engines
    assert settings.redis.url == (stack.redis_url if "redis" in extras else "")
    assert settings.postgres.url == (stack.postgres_url if "postgres" in extras else "")


@pytest.mark.parametrize("java_home", [None, "old"])
def test_without_java_one_line_names_the_remedy(run: Callable[..., Any], tmp_path: Path, java_home: str | None) -> None:
    """A traceback does not help a new user."""
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
    old.chmod(0o755)

    result = run("up", PATH="", JAVA_HOME=java_home and str(tmp_path))

    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "Java 11 or newer: install a JDK" in result.stderr
    assert result.stdout == ""


def test_an_error_is_json_if_json_was_requested(run: Callable[..., Any]) -> None:
    """All commands behave alike."""
    result = run("up", "--json", **NO_JAVA)

    assert json.loads(result.stderr)["code"] == "stack_unavailable"


def test_a_directory_without_a_stack_is_an_error(run: Callable[..., Any]) -> None:
    """An empty table would look like a stopped stack."""
    result = run("status")

    assert result.returncode == 1
    assert "there is no stack" in result.stderr
