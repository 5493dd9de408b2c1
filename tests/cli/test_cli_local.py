"""Credentials before a gateway runs: --local, and the key file."""

import asyncio
import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqgate import bootstrap
from mqgate.adapters.sqlite.engine import Engine
from mqgate.cli.main import cli
from mqgate.settings import AdminSettings, HttpSettings, Settings, SettingsInvalid, SqliteSettings

PASSWORD = "correct horse battery"


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def settings_of(directory: Path, **groups: object) -> Settings:
    return Settings(sqlite=SqliteSettings(directory=str(directory)), **groups)  # type: ignore[arg-type]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_the_first_key_is_created_without_a_gateway(data: Path) -> None:
    """No page of the documentation needs a temporary gateway; the key is printed once."""
    created = run("--json", "key", "create", "--admin", "--local", "--data-dir", str(data))
    second = run("--json", "key", "create", "--role", "viewer", "--local", "--data-dir", str(data))

    assert created.exit_code == second.exit_code == 0, created.output
    assert json.loads(created.stdout)["key"].startswith("mqk_")


def test_the_first_account_is_created_without_a_gateway(data: Path) -> None:
    """Creating it again does not change its password."""
    arguments = ("user", "create", "ada", "--admin", "--password-stdin", "--local", "--data-dir", str(data))
    assert run(*arguments, stdin=f"{PASSWORD}\n").exit_code == 0
    again = run(*arguments, stdin="another password\n")

    assert again.exit_code == 1
    assert "already_exists" in again.stderr


def test_the_first_account_must_be_an_admin(data: Path) -> None:
    """The rule is the same as over HTTP."""
    arguments = ("user", "create", "bob", "--password-stdin", "--local", "--data-dir", str(data))
    refused = run(*arguments, stdin=f"{PASSWORD}\n")

    assert refused.exit_code == 1
    assert "first_key_not_admin" in refused.stderr


def test_local_requires_the_directory_for_itself(data: Path) -> None:
    """SQLite has one writing process. The error says what to do instead."""
    engine = Engine(data)
    try:
        refused = run("key", "create", "--admin", "--local", "--data-dir", str(data))
    finally:
        # The test itself is not async: the command runs a loop of its own.
        asyncio.run(engine.close())

    assert refused.exit_code == 1
    assert "omit --local to call a running gateway" in refused.stderr


async def test_the_key_file_is_written_once_and_opens_a_public_gateway(data: Path, tmp_path: Path) -> None:
    """A container starts without a command; a restart keeps the key; only the owner can read it."""
    file = tmp_path / "admin.key"
    settings = settings_of(data, admin=AdminSettings(key_file=str(file)), http=HttpSettings(host="192.0.2.7"))
    keys = []
    for _ in range(2):
        async with bootstrap.gateway(settings) as gateway:
            principal = await gateway.access.authenticate(f"Bearer {file.read_text().strip()}")
            keys.append((principal.kind, principal.key_id, len(gateway.registry.snapshot.keys)))

    assert keys[0] == keys[1]
    assert keys[0][::2] == ("admin", 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_key_file_without_a_key_stops_the_start(data: Path, tmp_path: Path) -> None:
    """A weak text must not become an admin key, and the error must not quote it."""
    file = tmp_path / "admin.key"
    file.write_text("password")

    with pytest.raises(SettingsInvalid, match="must contain one key") as refused:
        async with bootstrap.gateway(settings_of(data, admin=AdminSettings(key_file=str(file)))):
            pass

    assert "password" not in str(refused.value)
