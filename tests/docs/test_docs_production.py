"""The commands on the page for operators work: keys before addresses, backups, a lost key."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from doc_pages import ROOT, blocks, run

from mqgate.testing.server_process import ServerProcess

PAGE = ROOT / "docs" / "how-to" / "run-in-production-on-one-machine.md"


def _block(word: str) -> str:
    """Return the only block of the page that contains this word."""
    (found,) = [text for text in blocks(PAGE, "") if word in text]
    return found


def _serve_on_every_address(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--host", "0.0.0.0", "--port", "0"]  # noqa: S104
    return subprocess.run(  # noqa: S603 - our own interpreter
        [*command, "--data-dir", str(directory)], capture_output=True, text=True, timeout=60, check=False
    )


def test_without_a_key_another_address_is_refused_in_the_words_of_the_page(tmp_path: Path) -> None:
    """An operator searches for the line on the screen."""
    refused = _serve_on_every_address(tmp_path / "data")

    assert refused.returncode == 2
    assert refused.stderr == _block("is not loopback")


def test_with_a_key_another_address_is_served_and_the_key_is_needed(tmp_path: Path) -> None:
    """The order of the page: a key on loopback first, then the address."""
    server = ServerProcess(tmp_path / "data").start()
    key = httpx.post(f"{server.url}/v1/keys", json={"role": "admin"}).json()["key"]
    server.stop()

    server = ServerProcess(tmp_path / "data", "--host", "0.0.0.0").start()  # noqa: S104 - that it may is the point
    try:
        assert httpx.get(f"{server.url}/v1/topics").status_code == 401
        assert httpx.get(f"{server.url}/v1/topics", headers={"Authorization": f"Bearer {key}"}).is_success
    finally:
        server.stop()


def test_a_backup_of_a_running_gateway_can_be_served(demo: ServerProcess, tmp_path: Path) -> None:
    """A backup must be proved by a restore."""
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv" / "data").symlink_to(demo.directory)
    published = httpx.post(f"{demo.url}/v1/topics/demo/messages", content=b"keep me").json()

    printed = run("sh", "-eu", script=_block("source.backup").replace("/srv/mqgate", str(tmp_path / "srv")))

    assert printed == "ok\n"
    (tmp_path / "restored").mkdir()
    (tmp_path / "srv" / "backup.db").rename(tmp_path / "restored" / "mqgate.db")
    restored = ServerProcess(tmp_path / "restored").start()
    try:
        found = httpx.get(f"{restored.url}/v1/topics/demo/messages/{published['id']}").json()
        assert found["body"] == "keep me"
    finally:
        restored.stop()


def test_a_lost_key_can_be_deleted(tmp_path: Path) -> None:
    """Without this line a lost key would mean a lost data directory."""
    server = ServerProcess(tmp_path / "srv" / "data").start()
    assert httpx.post(f"{server.url}/v1/keys", json={"role": "admin"}).is_success
    assert httpx.get(f"{server.url}/v1/topics").status_code == 401
    server.stop()

    run("sh", "-eu", script=_block("DELETE FROM registry").replace("/srv/mqgate", str(tmp_path / "srv")))

    server.start()
    assert httpx.get(f"{server.url}/v1/topics").is_success
    server.stop()


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(--[a-z-]+)`", PAGE.read_text("utf-8")))))
def test_flags_on_the_page_exist(option: str) -> None:
    """A renamed flag must be found here and not at the next start."""
    assert option in (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
