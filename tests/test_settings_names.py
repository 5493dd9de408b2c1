"""Settings: deprecated names keep working for one release, and durations are written as in the API."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqgate.cli.main import cli
from mqgate.settings import Settings, SettingsInvalid

DEPRECATED = {
    ("log", "engine"): ("messages", "engine", "rocketmq"),
    ("log", "level"): ("logging", "level", "error"),
    ("log", "format"): ("logging", "format", "json"),
    ("log", "requests"): ("logging", "requests", "all"),
}
ROCKETMQ = {"MQGATE_ROCKETMQ_NAME_SERVERS": "127.0.0.1:9876"}


def variable(group: str, name: str) -> str:
    return f"MQGATE_{group}_{name}".upper()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mqgate.toml"


@pytest.mark.parametrize("old", DEPRECATED)
def test_a_deprecated_name_in_the_file_sets_the_new_option(file: Path, old: tuple[str, str]) -> None:
    """A gateway that is upgraded must start with the file of the release before."""
    group, name, value = DEPRECATED[old]
    file.write_text(f'[{old[0]}]\n{old[1]} = "{value}"\n')

    settings = Settings.load(file, ROCKETMQ)

    (deprecation,) = settings.deprecations
    assert getattr(getattr(settings, group), name) == value
    assert f"[{old[0]}] {old[1]} is deprecated; use [{group}] {name}" in deprecation


@pytest.mark.parametrize("old", DEPRECATED)
def test_a_deprecated_variable_sets_the_new_option(old: tuple[str, str]) -> None:
    """Containers are configured by variables, which an upgrade does not change."""
    group, name, value = DEPRECATED[old]

    settings = Settings.load(None, {**ROCKETMQ, variable(*old): value})

    (deprecation,) = settings.deprecations
    assert getattr(getattr(settings, group), name) == value
    assert deprecation.startswith(f"{variable(*old)} is deprecated")
    assert deprecation.endswith(variable(group, name))


def test_new_names_are_not_reported_as_deprecated(file: Path) -> None:
    """A warning that cannot be removed is soon ignored."""
    file.write_text('[messages]\nengine = "rocketmq"\n[logging]\nformat = "json"\n')

    settings = Settings.load(file, {**ROCKETMQ, "MQGATE_LOGGING_LEVEL": "error"})

    assert (settings.messages.engine, settings.logging.format, settings.logging.level) == ("rocketmq", "json", "error")
    assert not settings.deprecations


@pytest.mark.parametrize("old", DEPRECATED)
def test_a_deprecated_name_beside_the_new_one_is_an_error(file: Path, old: tuple[str, str]) -> None:
    """Two values for one option: no rule of precedence would be obvious to the reader of the file."""
    group, name, value = DEPRECATED[old]
    file.write_text(f'[{old[0]}]\n{old[1]} = "{value}"\n')

    with pytest.raises(SettingsInvalid) as refused:
        Settings.load(file, {**ROCKETMQ, variable(group, name): value})

    (fault,) = refused.value.faults
    assert f"[{old[0]}] {old[1]} and {variable(group, name)} set the same option" in fault


def test_an_unknown_name_in_a_deprecated_section_is_an_error(file: Path) -> None:
    """A misspelt option must not be ignored because its section is old."""
    file.write_text('[log]\nlevels = "info"\n')

    with pytest.raises(SettingsInvalid, match=r"\[log\] levels: unknown setting"):
        Settings.load(file, {})


def test_the_doctor_warns_of_deprecated_names(file: Path) -> None:
    """An operator should learn of the new name before the release that removes the old one."""
    file.write_text('[log]\nformat = "json"\n')

    result = CliRunner().invoke(cli, ["--url", "http://127.0.0.1:1", "--json", "doctor", "--config", str(file)])

    (check,) = (check for check in json.loads(result.stdout)["checks"] if check["check"] == "settings")
    assert check["status"] == "warn"
    assert "use [logging] format" in check["detail"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10", timedelta(seconds=10)),
        ("0.5", timedelta(milliseconds=500)),
        ('"500ms"', timedelta(milliseconds=500)),
        ('"30s"', timedelta(seconds=30)),
        ('"15m"', timedelta(minutes=15)),
        ('"2h"', timedelta(hours=2)),
        ('"3d"', timedelta(days=3)),
    ],
)
def test_a_duration_is_seconds_or_text_with_a_unit(file: Path, text: str, expected: timedelta) -> None:
    """The API accepts the same texts, so that an operator writes a duration in one way everywhere."""
    file.write_text(f"[http]\nidle_timeout = {text}\n")

    in_file = Settings.load(file, {})
    in_variable = Settings.load(None, {"MQGATE_HTTP_IDLE_TIMEOUT": text.strip('"')})

    assert (in_file.http.idle_timeout, in_variable.http.idle_timeout) == (expected, expected)


@pytest.mark.parametrize("text", ["true", "[1]", '"3 days"', '"1w"', '""', "nan", "inf", '"36501d"', '"1e400"'])
def test_an_invalid_duration_is_refused(file: Path, text: str) -> None:
    """A time-out that was misread would show only when it strikes."""
    file.write_text(f"[http]\nidle_timeout = {text}\n")

    with pytest.raises(SettingsInvalid, match=r"\[http\] idle_timeout: .* is not a duration"):
        Settings.load(file, {})


def test_a_negative_duration_is_refused(file: Path) -> None:
    """A lease that ends before it begins is never meant."""
    file.write_text("[group_defaults]\nvisibility = -1\n")

    with pytest.raises(SettingsInvalid, match=r"\[group_defaults\] visibility must not be negative"):
        Settings.load(file, {})


def test_serve_logs_a_warning_for_a_deprecated_name(file: Path) -> None:
    """Operators read the log of a start, and the line names the option to use."""
    file.write_text('[log]\nformat = "json"\n')
    # An open gateway refuses this address, so that the process ends by itself.
    command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--config", str(file), "--host", "0.0.0.0"]  # noqa: S104

    served = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603

    (warning,) = (line for line in map(json.loads, served.stdout.splitlines()) if line["level"] == "warning")
    assert warning["event"] == "deprecated setting found"
    assert "use [logging] format" in warning["detail"]
