"""The examples that `mqgate serve --demo` prints."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from mqgate.testing.server_process import ServerProcess


def _greeting(directory: Path) -> str:
    """Return the output of a server that is stopped as soon as it prints its address."""
    command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--demo", "--port", "0", "--data-dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own words
        assert server.stdout is not None
        first = server.stdout.readline()
        server.terminate()
        return first + server.stdout.read()


def test_the_demo_prints_examples_on_an_empty_data_directory(tmp_path: Path) -> None:
    """New users copy the curl commands, at every start."""
    said = [_greeting(tmp_path), _greeting(tmp_path)]

    assert [text.count("curl ") for text in said] == [3, 3]


@pytest.mark.parametrize("used", ["topics/mine", "keys"])
def test_the_demo_prints_no_examples_that_would_fail(tmp_path: Path, used: str) -> None:
    """An existing registry has no demo topic, and a gateway with keys requires one."""
    server = ServerProcess(tmp_path, *(["--demo"] if used == "keys" else [])).start()
    with httpx.Client(base_url=f"{server.url}/v1") as api:
        made = api.post(used, json={"role": "admin"}) if used == "keys" else api.put(used, json={})
        assert made.status_code == 201
    server.stop()

    said = _greeting(tmp_path)

    assert "mqgate listens on" in said
    assert "curl" not in said
