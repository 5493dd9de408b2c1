"""`mqgate stack`: RocketMQ, Redis and PostgreSQL on this machine, to evaluate the gateway."""

from pathlib import Path
from typing import Any

import click

from mqgate.cli.output import as_json, examples, note, table
from mqgate.cli.session import Session, with_json
from mqgate.stack import BrokerSpec, Extra, Stack

__all__ = ["configuration", "stack"]

_COLUMNS = ("name", "state", "address", "pid", "log")
# Brokers take up to 20 s to stop.
_STOP_TIMEOUT = 60.0
_directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default="./stack",
    show_default=True,
    help="Directory of the stack; one stack per directory.",
)


@click.group()
def stack() -> None:
    """Run RocketMQ, Redis and PostgreSQL on loopback, for evaluation and tests.

    Requires Java 11 or newer and Maven, which downloads RocketMQ once. Not for production: no passwords, small heaps.
    """


@stack.command(
    epilog=examples(
        "mqgate stack up",
        "mqgate stack up --redis --postgres --directory ./stack",
        "mqgate serve --config ./stack/mqgate.toml",
    )
)
@_directory_option
@click.option("--brokers", type=click.IntRange(1, 9), default=2, show_default=True, help="Number of brokers.")
@click.option("--redis", "has_redis", is_flag=True, help="Also start Redis (or Valkey).")
@click.option("--postgres", "has_postgres", is_flag=True, help="Also start PostgreSQL.")
@click.option(
    "--proxy",
    "has_proxy",
    is_flag=True,
    help="Also start the RocketMQ proxy for gRPC clients. It listens on all interfaces.",
)
@with_json
def up(session: Session, directory: Path, brokers: int, has_redis: bool, has_postgres: bool, has_proxy: bool) -> None:
    """Start the servers, wait until they are ready, and print the configuration for a gateway.

    They run until `mqgate stack down`. Servers of an earlier stack in the directory are started again, with the same
    ports and data. Running servers are not changed.
    """
    opened = Stack(directory, progress=note)
    extras: list[Extra] = []
    extras += ["redis"] if has_redis else []
    extras += ["postgres"] if has_postgres else []
    extras += ["proxy"] if has_proxy else []
    is_new = opened.up([BrokerSpec(name=f"broker-{chr(ord('a') + i)}") for i in range(brokers)], extras)
    if not is_new:
        note(f"the stack in {directory} is already running")
    text = configuration(opened)
    (opened.directory / "mqgate.toml").write_text(text, "utf-8")
    click.echo(as_json(_describe(opened)) if session.is_json else text, nl=session.is_json)
    note(f"configuration written to {opened.directory / 'mqgate.toml'}")
    note(f"stop the stack with: mqgate stack down --directory {directory}")


@stack.command()
@_directory_option
@with_json
def status(session: Session, directory: Path) -> None:
    """Show the state of all servers. The exit code is 1 unless all are ready."""
    report = _describe(Stack.open(directory))
    click.echo(as_json(report) if session.is_json else table(report["parts"], _COLUMNS))
    if any(part["state"] != "ready" for part in report["parts"]):
        raise click.exceptions.Exit(1)


@stack.command()
@_directory_option
@click.option(
    "--now", "is_now", is_flag=True, help="Do not wait for a clean shutdown of the brokers; their data is kept."
)
@with_json
def down(session: Session, directory: Path, is_now: bool) -> None:
    """Stop all servers of the directory. Their data is kept."""
    opened = Stack(directory)
    running = sum(map(opened.is_alive, opened.parts()))
    if running and not is_now:
        note(f"stopping {running} servers; brokers take up to 20 s (--now does not wait)")
    ended = opened.down(patience=0.0 if is_now else _STOP_TIMEOUT)
    session.confirm({"ended": ended}, f"{ended} servers stopped" if ended else "no server was running")


def configuration(opened: Stack) -> str:
    """Return the mqgate.toml of a gateway that uses this stack."""
    parts = opened.parts()
    lines = ["[messages]", 'engine = "rocketmq"', "", "[rocketmq]", f'name_servers = ["{opened.name_server}"]']
    if "redis" in parts:
        lines += ["", "[leases]", 'engine = "redis"', "", "[redis]", f'url = "{opened.redis_url}"']
    if "postgres" in parts:
        lines += ["", "[control]", 'engine = "postgres"', "", "[postgres]", f'url = "{opened.postgres_url}"']
    # As a comment: unknown settings are errors.
    lines += ["", f"# Proxy, gRPC: {opened.address('proxy')}"] if "proxy" in parts else []
    return "\n".join([*lines, ""])


def _describe(opened: Stack) -> dict[str, Any]:
    parts = opened.parts()
    report: dict[str, Any] = {"directory": str(opened.directory), "nameServers": [], "redis": None, "postgres": None}
    report["nameServers"] = [part.address for part in parts.values() if part.kind == "name-server"]
    report["redis"] = opened.redis_url if "redis" in parts else None
    report["postgres"] = opened.postgres_url if "postgres" in parts else None
    report["parts"] = [
        {
            "name": name,
            "state": "ready" if opened.is_ready(name) else "not ready" if opened.is_alive(name) else "ended",
            "address": part.address,
            "pid": part.pid,
            "log": str(opened.log(name)),
        }
        for name, part in parts.items()
    ]
    return report
