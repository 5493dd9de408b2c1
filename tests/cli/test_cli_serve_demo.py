"""What `mqgate serve --demo` says: lines that work as printed, or none."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from mqgate.testing.server_process import ServerProcess


def _greeting(directory: Path) -> str:
    """All that it prints until it was told to stop, which it is as soon as it says where it listens."""
    command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--demo", "--port", "0", "--data-dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own words
        assert server.stdout is not None
        first = server.stdout.readline()
        server.terminate()
        return first + server.stdout.read()


def test_on_an_empty_data_directory_there_is_something_to_try(tmp_path: Path) -> None:
    """The address, and three lines for curl; the next time as well."""
    said = [_greeting(tmp_path), _greeting(tmp_path)]

    assert [text.count("curl ") for text in said] == [3, 3]


@pytest.mark.parametrize("used", ["topics/mine", "keys"])
def test_where_the_lines_would_not_work_none_are_printed(tmp_path: Path, used: str) -> None:
    """Somebody else's registry has no demo, and behind keys nobody gets in without one."""
    server = ServerProcess(tmp_path, *(["--demo"] if used == "keys" else [])).start()
    with httpx.Client(base_url=f"{server.url}/v1") as api:
        made = api.post(used, json={"role": "admin"}) if used == "keys" else api.put(used, json={})
        assert made.status_code == 201
    server.stop()

    said = _greeting(tmp_path)

    assert "mqgate listens on" in said
    assert "curl" not in said
