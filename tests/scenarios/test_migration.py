"""An upgrade from 0.1.0: this release opens what that release stored, on both deployments."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from old_release import MODES, SHORT, Caller, Json, Stored, bodies, check_out, default_settings, fill, receipts

from mqgate.settings import Settings
from mqgate.testing.server_process import ServerProcess
from production_set import as_environment, on_production

pytestmark = pytest.mark.timeout(300)
# Names of 0.1.0, and the names that replace them.
RENAMED = {
    ("log", "engine"): ("messages", "engine"),
    ("log", "level"): ("logging", "level"),
    ("log", "format"): ("logging", "format"),
    ("log", "requests"): ("logging", "requests"),
}
LOG = {"level": "warning", "format": "json", "requests": "failed"}


@dataclass(frozen=True)
class Upgraded:
    """A gateway of this release on the data of 0.1.0."""

    url: str
    engine: str
    before: Stored
    api: Caller
    log: Path


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> str:
    return check_out(tmp_path_factory.mktemp("release"))


@pytest.fixture(
    scope="module",
    params=[
        "stopped",
        "killed",
        pytest.param("distributed", marks=[pytest.mark.rocketmq, pytest.mark.redis, pytest.mark.postgres]),
    ],
)
def upgraded(
    request: pytest.FixtureRequest, release: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upgraded]:
    """Fill a gateway of 0.1.0, end it, and start this release with the same settings, under their old names."""
    directory = tmp_path_factory.mktemp("upgrade")
    with ExitStack() as ends:
        if request.param == "distributed":
            servers = [request.getfixturevalue(name) for name in ("rocketmq", "redis", "postgres")]
            arguments, environment = [], old_variables(ends.enter_context(on_production(Settings(), *servers)))
        else:
            arguments, environment = ["--config", str(old_file(directory / "mqgate.toml"))], {}
        old = ServerProcess(directory / "data", *arguments, **environment, PYTHONPATH=release).start()
        ends.callback(old.kill)
        with Caller(old.url) as anonymous:
            assert not is_this_release(anonymous)
        before = fill(old.url)
        if request.param == "killed":
            old.kill()
        else:
            assert old.stop() == 0
        time.sleep(SHORT)
        new = ServerProcess(directory / "data", *arguments, **environment)
        new.stdout = ends.enter_context((directory / "log").open("wb"))
        ends.callback(new.start().stop)
        api = ends.enter_context(Caller(new.url, before.admin_key))
        assert is_this_release(api)
        engine = "rocketmq" if request.param == "distributed" else "sqlite"
        yield Upgraded(new.url, engine, before, api, directory / "log")


def old_file(path: Path) -> Path:
    path.write_text("[log]\n" + "".join(f'{name} = "{value}"\n' for name, value in {"engine": "sqlite", **LOG}.items()))
    return path


def old_variables(settings: Settings) -> dict[str, str]:
    environment = as_environment(settings)
    environment["MQGATE_LOG_ENGINE"] = environment.pop("MQGATE_MESSAGES_ENGINE")
    return environment | {f"MQGATE_LOG_{name.upper()}": value for name, value in LOG.items()}


def is_this_release(api: Caller) -> bool:
    """Tell the releases apart by a schema name, because the version is raised only with the release."""
    return "ReadinessOut" in api.http.get("/openapi.json").raise_for_status().text


def test_old_names_of_settings_work_with_a_warning(upgraded: Upgraded) -> None:
    """Operators upgrade the gateway before its configuration, and learn from the log what to change."""
    lines = [json.loads(line) for line in upgraded.log.read_text().splitlines() if line[0] == "{"]
    warnings = [line["detail"] for line in lines if line["event"] == "deprecated setting found"]

    assert upgraded.api.call("GET", "info")["engine"] == upgraded.engine
    assert {line["level"] for line in lines} == {"warning"}
    assert len(warnings) == len(RENAMED)
    for group, name in RENAMED.values():
        assert any(f"use [{group}] {name} or MQGATE_{group}_{name}".upper() in text.upper() for text in warnings)


def test_keys_stay_valid_with_their_rights(upgraded: Upgraded) -> None:
    """Clients keep their keys; a gateway that forgot them would accept every request."""
    with Caller(upgraded.url, upgraded.before.group_key) as member, Caller(upgraded.url) as anonymous:
        assert len(upgraded.api.call("GET", "keys")["items"]) == 2
        assert member.http.get("/v1/groups/message/lag").status_code == 200
        assert member.http.get("/v1/keys").status_code == 403
        assert anonymous.http.get("/v1/keys").status_code == 401


@pytest.mark.parametrize("mode", MODES)
def test_a_lease_in_flight_is_acked_by_its_receipt(upgraded: Upgraded, mode: str) -> None:
    """Workers finish what they hold during the upgrade; work that is done must not be done again."""
    before, api = upgraded.before, upgraded.api
    lag = api.lag(mode, mode)

    repeated = [api.settle("ack", mode, receipt) for receipt in before.acked[mode]]
    outcomes = [api.settle("ack", mode, receipt) for receipt in before.held[mode]]
    rest = api.receive(mode, 10, mode)
    settled = [api.settle("ack", mode, receipt) for receipt in receipts(rest)]

    assert lag == before.lags[mode]
    assert set(repeated) == {(200, "duplicate")}
    assert set(outcomes) == {(200, "applied")}
    assert bodies(rest) == [*"ef"]
    assert set(settled) == {(200, "applied")}
    assert api.lag(mode, mode)["lag"] == 0
    assert api.receive(mode, 10, mode, wait=0)["messages"] == []


def test_a_repeated_receive_returns_the_same_receipts(upgraded: Upgraded) -> None:
    """A client whose response was lost in the restart repeats its call, and must not lose the lease to itself."""
    again = upgraded.api.receive("attempts", 2, attemptId="first")

    assert bodies(again) == ["a", "b"]
    assert again["messages"] == upgraded.before.attempt["messages"]
    assert {upgraded.api.settle("ack", "attempts", receipt) for receipt in receipts(again)} == {(200, "applied")}


@pytest.mark.parametrize("group", ["nacked", "abandoned"])
def test_an_unfinished_message_is_delivered_again(upgraded: Upgraded, group: str) -> None:
    """A message that was nacked, or whose worker died, must reach another worker, and its attempts count."""
    received = upgraded.api.receive(group, 1)

    assert bodies(received) == ["again"]
    assert received["messages"][0]["delivery"] == 2
    assert upgraded.api.settle("ack", group, *receipts(received))[0] == 200


def test_the_receipt_of_a_nacked_message_is_not_accepted_for_another_operation(upgraded: Upgraded) -> None:
    """A receipt that is spent stays spent, otherwise a message in backoff would be lost by a late ack."""
    (receipt,) = receipts(upgraded.before.nacked)

    assert upgraded.api.settle("ack", "nacked", receipt) == (409, "lost")


def test_a_paused_group_stays_paused(upgraded: Upgraded) -> None:
    """An operator paused it for a reason that the upgrade does not remove."""
    upgraded.api.publish("paused", "waits")

    assert upgraded.api.receive("paused", 1, wait=0)["state"] == "paused"


def test_dead_letters_are_kept_and_redriven(upgraded: Upgraded) -> None:
    """They are the only copy of a message that failed."""
    before, api = upgraded.before, upgraded.api

    letters = api.call("GET", "groups/fragile/dead-letters")["items"]
    letter = api.call("GET", f"groups/fragile/dead-letters/{before.letter['id']}")
    api.call("POST", "groups/fragile/dead-letters/redrive", {"ids": [before.letter["id"]]})
    received = api.receive("fragile", 1)

    assert letters == before.letters
    assert letter == before.letter
    assert [message["id"] for message in received["messages"]] == [before.letter["id"]]
    assert api.settle("ack", "fragile", *receipts(received)) == (200, "applied")


def test_an_idempotency_key_is_still_known(upgraded: Upgraded) -> None:
    """Producers repeat a publish whose response was lost in the restart."""
    path, before, api = "/v1/topics/once/messages", upgraded.before, upgraded.api

    again = api.http.post(path, json={"body": "only", "idempotencyKey": "key"})
    other = api.http.post(path, json={"body": "other", "idempotencyKey": "key"})
    received = api.receive("once", 10)

    assert (again.status_code, again.json()["id"], again.json()["duplicate"]) == (200, before.once["id"], True)
    assert other.status_code == 422
    assert bodies(received) == ["only"]


def test_scheduled_messages_are_delivered_once_and_cancelled_ones_are_not(upgraded: Upgraded) -> None:
    """A timer may wait for two years, so that most timers meet an upgrade."""
    before, api = upgraded.before, upgraded.api
    number = before.scheduled["id"]

    shown = api.call("GET", f"scheduled/{number}")
    cancelled = api.call("DELETE", f"scheduled/{before.cancelled['id']}")
    api.call("PATCH", f"scheduled/{number}", {"delay": "0s"})
    received = api.receive("far", 10)

    assert shown == before.scheduled
    assert cancelled == before.cancelled
    assert [(message["id"], message["body"]) for message in received["messages"]] == [(number, "later")]
    assert api.receive("far", 10, wait=0)["messages"] == []


def test_a_message_that_became_due_during_the_upgrade_is_delivered_once(upgraded: Upgraded) -> None:
    """Nobody dispatches timers while the gateway is down, so the start has to catch up."""
    received = upgraded.api.receive("overdue", 10)

    assert [message["id"] for message in received["messages"]] == [upgraded.before.overdue["id"]]
    assert upgraded.api.receive("overdue", 10, wait=0)["messages"] == []


def as_file(settings: dict[str, Json], directory: Path) -> Settings:
    path = directory / "mqgate.toml"
    with path.open("w") as file:
        for section, options in settings.items():
            file.write(f"[{section}]\n")
            # JSON values are TOML values here.
            file.writelines(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
    return Settings.load(path, {})


def as_variables(settings: dict[str, Json], _: Path) -> Settings:
    return Settings.load(
        None,
        {
            f"MQGATE_{section}_{name}".upper(): ",".join(value) if isinstance(value, list) else str(value)
            for section, options in settings.items()
            for name, value in options.items()
            # No variable can set an empty list.
            if value != []
        },
    )


@pytest.mark.parametrize("load", [as_file, as_variables])
def test_every_setting_of_the_release_is_accepted(
    release: str, tmp_path: Path, load: Callable[[dict[str, Json], Path], Settings]
) -> None:
    """An unknown setting is an error, so that a name that was forgotten would prevent the start."""
    defaults = default_settings(release)

    settings = load(defaults, tmp_path)

    for section, options in defaults.items():
        for option, value in options.items():
            group, name = RENAMED.get((section, option), (section, option))
            assert plain(getattr(getattr(settings, group), name)) == value, f"[{section}] {option}"
    assert len(settings.deprecations) == len(RENAMED)


def plain(value: object) -> object:
    """Return the value of a setting as 0.1.0 represents it."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value
