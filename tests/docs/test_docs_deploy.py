"""The files of `deploy/` are consistent and are accepted by the programs that read them, without starting servers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_pages import ROOT, blocks

from mqgate import bootstrap
from mqgate.settings import HttpSettings, Settings, SqliteSettings
from mqgate.testing.server_process import ServerProcess

DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "how-to" / "deploy.md"
BEYOND_STOP_TIMEOUT = 15
PASSWORDS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Return compose.yaml with passwords, as Compose would read it."""
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    for name in PASSWORDS:
        text = text.replace(f"${{{name}:?}}", name.lower())
    loaded: dict[str, Any] = yaml.safe_load(text)
    assert "${" not in str(loaded)
    return loaded


def _gateways(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: service for name, service in compose["services"].items() if service.get("image") == "mqgate"}


def test_the_settings_of_every_gateway_are_accepted_and_need_no_directory(compose):
    """Two gateways share all state, so none may be in a local directory."""
    for gateway in _gateways(compose).values():
        settings = Settings.load(DEPLOY / "mqgate.toml", environment=gateway["environment"])

        assert settings.http.workers > 1
        assert (settings.messages.engine, settings.leases.engine, settings.control.engine) == (
            "rocketmq",
            "redis",
            "postgres",
        )


def test_the_unit_s_environment_completes_the_settings():
    """The file that operators complete must have the right names."""
    lines = [line for line in (DEPLOY / "mqgate.env").read_text("utf-8").splitlines() if not line.startswith("#")]

    settings = Settings.load(DEPLOY / "mqgate.toml", environment=dict(line.split("=", 1) for line in lines))

    assert settings.postgres.url
    assert ":secret@" in settings.redis.url


def test_every_address_in_the_settings_is_a_service(compose):
    """A wrong name would be found only when the gateway starts."""
    services = compose["services"]
    for gateway in _gateways(compose).values():
        settings = Settings.load(DEPLOY / "mqgate.toml", environment=gateway["environment"])
        urls = [settings.postgres.url, settings.redis.url]
        hosts = [re.fullmatch(r"\w+://(?:[^@]*@)?([^:/]+):\d+/.*", url) for url in urls]

        named = {match[1] for match in hosts if match}
        named |= {address.partition(":")[0] for address in settings.rocketmq.name_servers}

        assert len(named) == 3
        assert named <= services.keys()
        assert named <= gateway["depends_on"].keys()


def test_there_are_two_gateways_two_brokers_and_one_of_each_store(compose):
    """Fewer would not show a redundant deployment."""
    services = compose["services"]

    assert len(_gateways(compose)) == 2
    assert {"nameserver", "broker-a", "broker-b", "redis", "postgres", "balancer"} < services.keys()
    assert "--maxmemory-policy noeviction" in services["redis"]["command"][-1]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()


def test_files_and_volumes_that_the_services_mount_exist(compose):
    """Compose creates an empty directory for a missing file."""
    for service in compose["services"].values():
        for source in [volume.partition(":")[0] for volume in service.get("volumes", ())]:
            if source.startswith("."):
                assert (DEPLOY / source).is_file()
            else:
                assert source in compose["volumes"]


def test_brokers_differ_only_in_their_names():
    """Two brokers with one name would be taken for one, and other differences would be mistakes."""
    first, second = ((DEPLOY / "rocketmq" / f"broker-{letter}.conf").read_text("utf-8") for letter in "ab")

    assert "brokerName=broker-a\n" in first
    assert first.replace("broker-a", "broker-b") == second


def test_the_balancer_names_existing_gateways_ports_and_health_path(compose, paths):
    """A wrong one would remove every gateway from service."""
    text = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    port = re.search(r"^port = (\d+)", (DEPLOY / "mqgate.toml").read_text("utf-8"), re.MULTILINE)
    assert port is not None

    servers = re.findall(r"^    server \S+ (\S+):(\d+)", text, re.MULTILINE)
    (asked,) = re.findall(r"http-check send meth GET uri (\S+)", text)
    (bound,) = re.findall(r"bind :(\d+)$", text, re.MULTILINE)

    assert dict(servers) == dict.fromkeys(_gateways(compose), port[1])
    assert asked in paths
    assert compose["services"]["balancer"]["ports"] == [f"127.0.0.1:8080:{bound}"]
    for gateway in _gateways(compose).values():
        (path,) = re.findall(rf"http://127.0.0.1:{port[1]}(/\w+)", gateway["healthcheck"]["test"][-1])
        assert path in paths


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_accepts_the_unit(tmp_path):
    """A misspelt option is ignored by systemd, and with it the protection."""
    unit = (DEPLOY / "mqgate.service").read_text("utf-8")
    here = tmp_path / "mqgate.service"
    here.write_text(unit.replace("/opt/mqgate/bin/mqgate", sys.executable), "utf-8")

    checked = subprocess.run(  # noqa: S603 - our own file
        ["systemd-analyze", "verify", str(here)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_stop_may_take_as_long_as_the_gateway_allows(compose):
    """A gateway that is killed before its requests end fails them."""
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", (DEPLOY / "mqgate.service").read_text("utf-8"), re.MULTILINE)
    enough = HttpSettings().stop_timeout.total_seconds() + BEYOND_STOP_TIMEOUT

    assert int(seconds) == enough
    for gateway in _gateways(compose).values():
        assert gateway["stop_grace_period"] == f"{enough:.0f}s"


def test_the_files_of_the_image_and_the_command_of_the_unit_exist():
    """Every package of the image has a hash."""
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()

    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    missing = [source for sources in copied for source in sources if not (ROOT / source).exists()]
    locked = (DEPLOY / "requirements.txt").read_text("utf-8")

    assert not missing
    assert 'CMD ["mqgate", "serve"]' in lines
    assert "--require-hashes -r deploy/requirements.txt" in "\n".join(lines)
    assert {"hatchling", "httptools", "psycopg", "redis", "starlette"} <= set(
        re.findall(r"^([a-z0-9-]+)==", locked, re.MULTILINE)
    )
    assert "://" not in locked
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert {f"!{source}" for sources in copied for source in sources} <= set(allowed)


def test_the_image_has_the_tested_versions():
    """Production must not run versions that no test has seen."""
    ours, tested = (
        dict(re.findall(r"^([a-z0-9-]+)==(\S+)", path.read_text("utf-8"), re.MULTILINE))
        for path in (DEPLOY / "requirements.txt", ROOT / "requirements" / "dev.txt")
    )

    assert {name: version for name, version in ours.items() if tested.get(name) != version} == {}


def test_the_lines_that_create_the_first_key_need_no_gateway(tmp_path):
    """Without a key no gateway starts on an address of the set. A lost key is replaced by the same lines."""
    (lines,) = [text for text in blocks(PAGE, "") if "mqgate key create" in text and "docker" not in text]
    server = ServerProcess(tmp_path / "data")
    (tmp_path / "mqgate.toml").write_text(f'[http]\nhost = "0.0.0.0"\nport = {server.port}\n', "utf-8")
    # What the gateway needs to start comes from here, as on the page.
    (tmp_path / "mqgate.env").write_text(f"# secret\nMQGATE_SQLITE_DIRECTORY={tmp_path}/data\n", "utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def typed() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-eu"],  # noqa: S607
            input=lines.replace("/etc/mqgate/", f"{tmp_path}/"),
            env={**os.environ, "PATH": path, "MQGATE_URL": server.url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    first, again = typed(), typed()

    assert first.returncode == 0, first.stderr
    assert "mqk_" in first.stdout
    assert "mqk_" in again.stdout
    assert again.stdout != first.stdout
    server.arguments = ("--host", "0.0.0.0")  # noqa: S104 - that it may is the point
    assert server.start().stop() == 0


@pytest.fixture
async def paths(tmp_path):
    """Return every path of the HTTP API."""
    settings = Settings(sqlite=SqliteSettings(directory=str(tmp_path / "data")))
    async with bootstrap.gateway(settings) as gateway:
        yield {route.path for route in gateway.app.routes}  # type: ignore[attr-defined,unused-ignore]
