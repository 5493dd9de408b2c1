"""Everything that a user can see has an entry: settings, codes, commands, routes, members, metrics."""

import asyncio
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import click
import httpx
import pytest
from doc_pages import ROOT

from mqgate import bootstrap
from mqgate.cli.main import cli
from mqgate.settings import option_groups
from mqgate.telemetry.metrics import Metrics

REFERENCE = ROOT / "docs" / "reference"
FILLED = {
    "topic": "t",
    "producer": "p",
    "group": "g",
    "id": "x",
    "key": "x",
    "queue": "local:0",
    "account": "a",
    "team": "a",
}
FILLED |= {"rule": "backlog_count", "subject": "g", "silence": "x", "channel": "x"}


@pytest.fixture(scope="module")
def pages(generate: ModuleType) -> Mapping[str, str]:
    found: Mapping[str, str] = generate.pages()
    return found


@pytest.fixture(scope="module")
def document(generate: ModuleType) -> Mapping[str, Any]:
    """Return the OpenAPI document."""
    found: Mapping[str, Any] = asyncio.run(generate.surface())[0]
    return found


@pytest.mark.parametrize("name", ["settings.md", "errors.md", "cli.md", "api.md", "events.md", "alarm-rules.md"])
def test_generated_pages_are_current(name: str, pages: Mapping[str, str]) -> None:
    """Run `.venv/bin/python docs/generate.py` after a change of what they describe."""
    assert (REFERENCE / name).read_text("utf-8") == pages[name]


def test_every_setting_has_an_entry() -> None:
    """Under its name in the file and as a variable."""
    page = (REFERENCE / "settings.md").read_text("utf-8")

    for group, options in option_groups().items():
        for name in options.__dataclass_fields__:
            assert f"| `{name}` |" in page
            assert f"`MQGATE_{group.upper()}_{name.upper()}`" in page


def test_every_error_code_has_an_entry(generate: ModuleType) -> None:
    """Users search for the code in a response."""
    page = (REFERENCE / "errors.md").read_text("utf-8")
    codes = [error.code for error in generate.leaves()]

    assert len(codes) == len(set(codes)) > 30
    assert not [code for code in codes if f"| `{code}` |" not in page]
    assert set(generate.WHAT_TO_DO) == set(codes)


def test_every_route_has_an_entry(gateway: bootstrap.Gateway) -> None:
    """This includes /mq."""
    page = (REFERENCE / "api.md").read_text("utf-8")
    paths = [getattr(route, "path", "") for route in gateway.app.routes]

    assert len(paths) > 40
    assert not [path for path in paths if f"{path}`" not in page]


def test_every_command_has_an_entry() -> None:
    """In the form in which it is typed, and no entry for a removed command."""
    page = (REFERENCE / "cli.md").read_text("utf-8")

    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == _commands("mqgate", cli)


def _commands(path: str, command: click.Command) -> list[str]:
    found = [path]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += _commands(f"{path} {name}", child)
    return found


def test_every_metric_has_an_entry_and_no_entry_is_left_over() -> None:
    """Dashboards are built from that page."""
    page = (REFERENCE / "metrics.md").read_text("utf-8")
    typed = re.findall(r"^# TYPE (\S+) ", Metrics().render().decode(), re.MULTILINE)
    names = {name for name in typed if not name.endswith("_created")}

    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == names


def test_metrics_named_in_the_how_to_exist() -> None:
    """An alarm on a metric that does not exist never fires."""
    page = (ROOT / "docs" / "how-to" / "read-the-metrics.md").read_text("utf-8")
    names = set(re.findall(r"^# TYPE (\S+) ", Metrics().render().decode(), re.MULTILINE))

    named = {name.removesuffix("_bucket") for name in re.findall(r"\bmqgate_\w+", page)}

    assert named
    assert named <= names


def test_every_member_of_a_request_has_an_entry(document: Mapping[str, Any]) -> None:
    """Its meaning, default and limits are documented nowhere else."""
    page = (REFERENCE / "members.md").read_text("utf-8")
    taken = {name for name in document["components"]["schemas"] if name.endswith(("In", "Spec"))}

    assert len(taken) > 10
    for name in taken:
        for member in document["components"]["schemas"][name]["properties"]:
            assert f"`{member}`" in page or f'"{member}"' in page, f"{name}.{member}"


async def test_the_callers_column_is_correct(
    api: httpx.AsyncClient, generate: ModuleType, document: Mapping[str, Any]
) -> None:
    """It is a promise about security: every operation is tried with every kind of key."""
    assert (await api.put("/v1/topics/t", json={})).is_success
    assert (await api.put("/v1/producers/p", json={"topic": "t"})).is_success
    assert (await api.put("/v1/groups/g", json={"topic": "t"})).is_success
    admin = (await api.post("/v1/keys", json={"role": "admin"})).json()["key"]
    keys = {
        owner: (await api.post("/v1/keys", json={owner: name}, headers=_bearer(admin))).json()["key"]
        for owner, name in (("producer", "p"), ("group", "g"))
    }

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            who = generate._who(operation)
            address = path.format(**FILLED)
            anonymous = await api.request(method, address)
            assert (anonymous.status_code == 401) == (who != "none"), operation["operationId"]
            for owner, key in keys.items():
                response = await api.request(method, address, headers=_bearer(key))
                is_allowed = who in {"any", "none"} or f"{owner} (own)" in who
                assert (response.status_code != 403) == is_allowed, (operation["operationId"], owner, response.text)


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
