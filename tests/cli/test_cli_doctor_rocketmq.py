"""`mqgate doctor` against a real cluster."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from mqgate.stack import Stack

Run = Callable[..., Result]


def _free() -> str:
    """Return an address without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _statuses(result: Result) -> dict[str, str]:
    return {check["check"]: check["status"] for check in json.loads(result.stdout)["checks"]}


def _config(directory: Path, *name_servers: str, cluster: str = "") -> str:
    path = directory / "gateway.toml"
    servers = json.dumps(list(name_servers))
    path.write_text(f'[messages]\nengine = "rocketmq"\n[rocketmq]\nname_servers = {servers}\ncluster = "{cluster}"\n')
    return str(path)


@pytest.mark.timeout(300)
def test_every_broker_of_a_cluster_is_checked(pair: Stack, run: Run, tmp_path: Path) -> None:
    """Broker settings can weaken the guarantees of the gateway."""
    result = run("--json", "doctor", "--config", _config(tmp_path, pair.name_server, cluster="one"))

    found = _statuses(result)
    assert {name: status for name, status in found.items() if name.startswith(("name", "cluster", "local"))} == {
        f"name server {pair.name_server}": "ok",
        "cluster": "ok",
        "local: reachable": "ok",
        "local: version": "ok",
        "local: clock": "ok",
        "local: durability": "warn",
        "local: disk": found["local: disk"],
        "local: settings": "ok",
        "local: retention": "ok",
        "local: pulls": "ok",
    }
    assert not [name for name in found if name.startswith("broker-")], "of another cluster"


@pytest.mark.timeout(300)
def test_variables_are_settings_too(pair: Stack, run: Run) -> None:
    """A gateway in a container has no file. Here the setting of the cluster is missing too."""
    result = run("--json", "doctor", MQGATE_MESSAGES_ENGINE="rocketmq", MQGATE_ROCKETMQ_NAME_SERVERS=pair.name_server)

    assert result.exit_code == 1
    assert _statuses(result)["cluster"] == "fail"
    assert "one, pair" in result.stdout


def test_an_unreachable_name_server_is_a_failed_check(run: Run, tmp_path: Path) -> None:
    """No further check is possible, because the brokers are unknown."""
    address = _free()

    result = run("--json", "doctor", "--config", _config(tmp_path, address))

    found = _statuses(result)
    assert result.exit_code == 1
    assert found[f"name server {address}"] == "fail"
    assert "cluster" not in found


def test_invalid_settings_are_reported(run: Run, tmp_path: Path) -> None:
    """All faults are reported as by `serve`, without a traceback."""
    result = run("--json", "doctor", "--config", _config(tmp_path, "nowhere"))

    checks = json.loads(result.stdout)["checks"]
    assert [check["detail"] for check in checks if check["check"] == "settings"] == [
        "[rocketmq] name_servers: 'nowhere' is not host:port"
    ]


def test_without_settings_rocketmq_is_not_checked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most users have the embedded engine or a remote gateway."""
    monkeypatch.chdir(tmp_path)
    doctor = ("--url", f"http://{_free()}", "--json", "doctor")

    plain = run(*doctor)
    (tmp_path / "mqgate.toml").write_text("[http]\nport = 8080\n")
    embedded = run(*doctor)

    assert set(_statuses(plain)) == set(_statuses(embedded)) == {"mqgate", "python", "sqlite", "reachable"}
