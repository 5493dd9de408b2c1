"""Settings: secrets are never shown, whatever is wrong with them."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqgate.adapters.redis.client import RedisClient
from mqgate.cli.main import cli
from mqgate.core.errors import StorageRefused
from mqgate.settings import PostgresSettings, Settings, SettingsInvalid, StatsSettings, option_groups
from mqgate.stats.engine import open_stats

SECRETS = [
    (group, option.name)
    for group, options in option_groups().items()
    for option in fields(options)
    if option.metadata["secret"]
]
HIDDEN = "hunter2"
WRONG = {"number": "720022", "list": f'["{HIDDEN}"]', "table": f'{{ x = "{HIDDEN}" }}', "nested": f'[["{HIDDEN}", 1]]'}


@pytest.fixture(autouse=True)
def _own_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` runs in this process here: it must not take over the logs of the tests that follow."""
    monkeypatch.setattr("mqgate.telemetry.logs.configure", lambda *_: None)


def shows(text: str) -> bool:
    return HIDDEN in text or "720022" in text


def test_passwords_and_keys_are_secrets() -> None:
    """A new one must be declared as such: then the tests below cover it."""
    assert set(SECRETS) == {
        ("rocketmq", "secret_key"),
        ("rocketmq", "security_token"),
        ("redis", "url"),
        ("postgres", "url"),
        ("mq", "cipher_key"),
    }


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("group", "name"), SECRETS)
def test_a_secret_of_the_wrong_type_is_not_shown(tmp_path: Path, group: str, name: str, wrong: str) -> None:
    """Errors of a start end up in logs, which more people read than the file."""
    file = tmp_path / "mqgate.toml"
    file.write_text(f"[{group}]\n{name} = {WRONG[wrong]}\n")

    with pytest.raises(SettingsInvalid) as refused:
        Settings.load(file, {})

    assert f"[{group}] {name}: the value is not text" in str(refused.value)
    assert not shows(str(refused.value))


@pytest.mark.parametrize("command", [("serve",), ("doctor",), ("pipeline", "rollup")])
def test_no_command_shows_a_secret_of_the_wrong_type(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Each of them reads the file, and prints what is wrong with it."""
    file = tmp_path / "mqgate.toml"
    file.write_text(
        "".join(f"[{group}]\n{name} = {WRONG['list']}\n" for group, name in SECRETS if name != "secret_key")
    )

    result = CliRunner().invoke(cli, [*command, "--config", str(file)], env={"MQGATE_URL": "http://127.0.0.1:1"})

    assert result.exit_code != 0
    assert "[postgres] url" in result.output
    assert not shows(result.output)


def test_a_secret_in_the_environment_is_not_shown_beside_another_fault() -> None:
    """A faulty variable is named, a faulty secret is not quoted, and the settings themselves hide them."""
    variables = {f"MQGATE_{group}_{name}".upper(): HIDDEN for group, name in SECRETS}
    keyless = {name: text for name, text in variables.items() if name != "MQGATE_MQ_CIPHER_KEY"}

    with pytest.raises(SettingsInvalid) as refused:
        Settings.load(None, {**variables, "MQGATE_HTTP_PORT": "x", "MQGATE_POSTGRES_URI": HIDDEN})

    assert {"cipher_key", "MQGATE_HTTP_PORT", "MQGATE_POSTGRES_URI"} <= set(str(refused.value).replace(":", "").split())
    assert not shows(str(refused.value))
    assert not shows(repr(Settings.load(None, {**keyless, "MQGATE_ROCKETMQ_ACCESS_KEY": "ada"})))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql//ada:{HIDDEN}@127.0.0.1/db",
        f"postgresql://ada:{HIDDEN}%zz@127.0.0.1/db",
        f"postgresql://ada:x {HIDDEN}@127.0.0.1/db",
        f"postgresql://ada:x@{HIDDEN}@127.0.0.1/db",
        f"postgresql://ada:{HIDDEN}/x@127.0.0.1/db",
    ],
)
def test_a_malformed_url_of_postgresql_is_not_shown(tmp_path: Path, settings: Settings, url: str) -> None:
    """The driver quotes what it cannot read, or takes a part of the password for a host and names that."""
    file = tmp_path / "mqgate.toml"
    file.write_text(f'[control]\nengine = "postgres"\n[postgres]\nurl = "{url}"\nconnect_timeout = 1\n')
    stats = replace(settings, stats=StatsSettings(engine="postgres"), postgres=PostgresSettings(url=url))

    served = CliRunner().invoke(cli, ["serve", "--config", str(file), "--data-dir", str(tmp_path / "data")])
    with pytest.raises(StorageRefused) as refused:
        open_stats(stats, is_writing=False)

    assert (served.exit_code, "[postgres] url" in served.output) == (1, True)
    assert not shows(served.output + str(refused.value))


@pytest.mark.parametrize(
    "url", [f"redis//:{HIDDEN}@h", f"redis://:{HIDDEN}/x@h:6379", f"redis://:{HIDDEN}#x@h", f"redis://:{HIDDEN}[x@h"]
)
def test_a_malformed_url_of_redis_is_not_shown(url: str) -> None:
    """redis-py quotes what it takes for the port."""
    with pytest.raises(StorageRefused) as refused:
        RedisClient(url, timeout=1.0)

    assert "[redis] url" in str(refused.value)
    assert not shows(str(refused.value))
