"""The command as a whole: help, exit codes and errors."""

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from mqgate import __version__
from mqgate.cli.main import cli


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from _commands(inner, (*path, name))


OURS = [(path, command) for path, command in _commands(cli) if path[:1] != ("serve",)]


@pytest.fixture
def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(("path", "command"), OURS, ids=[" ".join(path) or "mqgate" for path, _ in OURS])
def test_every_command_explains_itself_and_each_of_its_options(path, command, run):
    """Most users read only --help."""
    result = run(*path, "--help")

    assert result.exit_code == 0
    assert command.help
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help, option.name


def _examples() -> Iterator[str]:
    """Return the example lines of all help texts, with dates filled in."""
    for _, command in OURS:
        for line in (command.epilog or "").splitlines():
            if line.startswith("  mqgate ") and not re.search(
                r"[|<]| serve| doctor| stack| pipeline| outbox| processed| --url| --local", line
            ):
                yield line.strip().replace("$(date -u +%Y)", "2030")


@pytest.mark.parametrize("line", sorted({*_examples()}))
def test_every_example_is_written_correctly(run, closed_port, line, tmp_path, monkeypatch):
    """With the port closed, exit code 3 means that the command was valid, and 2 that it was not."""
    monkeypatch.chdir(tmp_path)
    for file in re.findall(r"--(?:\w+-)?file (\S+)", line):
        (tmp_path / file).write_text("{}")

    result = run(*shlex.split(line)[1:], MQGATE_URL=closed_port)

    assert result.exit_code == 3, result.stderr


def test_a_command_that_only_calls_a_gateway_does_not_load_one():
    """Every command would take twice as long to start."""
    program = "import mqgate.cli.topic, mqgate.cli.main, sys; sys.exit('httptools' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603 - our own words


def test_serve_does_not_load_the_client():
    """Other commands and the clients of unused engines are not loaded either, which keeps the start short."""
    spared = {"httpx", "pyspark", "mqgate.rocketmq", "redis", "psycopg"}
    program = f"import mqgate.cli.serve, mqgate.cli.serving, sys; sys.exit(bool({spared} & sys.modules.keys()))"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603 - our own words


def test_serve_is_listed_among_the_commands(run):
    """A command that is loaded late must still be listed."""
    assert "  serve " in run("--help").stdout
    assert run("serve", "--help").exit_code == 0


@pytest.mark.parametrize("verb", ["topic", "producer", "group", "key"])
def test_every_way_to_create_something_shows_an_example(verb, run):
    """Users copy examples."""
    assert f"  mqgate {verb} create " in run(verb, "create", "--help").stdout


def test_the_version_is_that_of_the_distribution(run):
    """Bug reports contain it."""
    assert run("--version").stdout == f"mqgate, version {__version__}\n"


def test_an_unreachable_gateway_is_exit_code_3_and_one_line(run, closed_port):
    """A script must distinguish an unreachable gateway from a refusal."""
    result = run("--url", closed_port, "topic", "list")

    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: no response from {closed_port}")
    assert result.stderr.endswith("(gateway_unreachable)\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--json", "topic", "list"), ("topic", "list", "--json")])
def test_json_also_shapes_errors_wherever_the_option_stands(run, closed_port, arguments):
    """A program that reads JSON must not parse a sentence when something fails."""
    result = run("--url", closed_port, *arguments)

    problem = json.loads(result.stderr)
    assert result.exit_code == 3
    assert (problem["code"], problem["retryable"]) == ("gateway_unreachable", True)


def test_the_address_comes_from_the_environment_unless_it_is_given(run, closed_port):
    """One variable is enough for a whole session, and an option overrides it."""
    from_environment = run("topic", "list", MQGATE_URL=closed_port)
    overruled = run("topic", "list", "--url", closed_port, MQGATE_URL="http://127.0.0.1:1/other")

    assert closed_port in from_environment.stderr
    assert closed_port in overruled.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("topic", "show"),
        ("topic", "show", ""),
        ("topic", "list", "--url", "localhost:8080"),
        ("topic", "list", "--key", "two\nlines"),
        ("topic", "create", "t", "--retention-bytes", "many"),
        ("producer", "create", "p"),
        ("producer", "create", "p", "--topic", "t", "--rate-limit", "fast"),
        ("group", "create", "g", "--topic", "t", "--mode", "loud"),
        ("group", "create", "g", "--topic", "t", "--backoff", "initial=1s,factor"),
        ("group", "seek", "g"),
        ("group", "seek", "g", "--to", "latest", "--offset", "local:0=1"),
        ("group", "seek", "g", "--offset", "local:0=-1"),
        ("key", "create"),
        ("key", "create", "--admin", "--group", "g"),
        ("pub", "t"),
        ("pub", "t", "body", "--file", __file__),
        ("pub", "t", "body", "--lines"),
        ("pub", "t", "body", "--property", "novalue"),
        ("pub", "t", "body", "--delay", "1s", "--deliver-at", "2030-01-31T12:00:00Z"),
        ("scheduled", "cancel"),
        ("scheduled", "retime", "id"),
        ("scheduled", "retime", "id", "--delay", "1s", "--deliver-at", "2030-01-31T12:00:00Z"),
        ("group", "create", "g", "--topic", "t", "--filter-tag", "a", "--no-filter"),
        ("group", "dead-letters", "redrive", "g"),
        ("group", "dead-letters", "redrive", "g", "id", "--all"),
        ("group", "dead-letters", "redrive", "g", "--all", "--rate", "0"),
        ("group", "dead-letters", "purge", "g"),
        ("group", "dead-letters", "purge", "g", "id", "--all", "--yes"),
        ("sub", "g", "--wait", "61"),
        ("sub", "g", "--wait", "soon"),
        ("sub", "g", "--wait", "0"),
        ("sub", "g", "--body", "--json"),
    ],
    ids=" ".join,
)
def test_a_usage_error_is_exit_code_2_and_sends_no_request(run, closed_port, arguments):
    """With the port closed, anything sent would have been exit code 3."""
    result = run(*arguments, MQGATE_URL=closed_port)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


def test_a_usage_error_is_json_if_json_was_requested(run):
    """The program that reads the output also reads this error."""
    result = run("--json", "pub", "t")

    assert result.exit_code == 2
    assert json.loads(result.stderr)["code"] == "usage_error"
