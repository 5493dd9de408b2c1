"""`mqgate stack`: RocketMQ, Redis and PostgreSQL on this machine, to try the gateway with."""

from pathlib import Path
from typing import Any

import click

from mqgate.cli.output import as_json, examples, note, table
from mqgate.cli.session import Session, with_json
from mqgate.stack import BrokerSpec, Extra, Stack

__all__ = ["configuration", "stack"]

_COLUMNS = ("name", "state", "address", "pid", "log")
# Brokers take up to 20 s to end.
_PATIENCE = 60.0
_directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default="./stack",
    show_default=True,
    help="Where its files are; one directory, one stack.",
)


@click.group()
def stack() -> None:
    """Run RocketMQ, Redis and PostgreSQL on loopback, for a try or for tests.

    Needs Java 11 or newer and Maven, which fetches RocketMQ once. Not for production: no passwords, small heaps.
    """


@stack.command(
    epilog=examples(
        "mqgate stack up",
        "mqgate stack up --redis --postgres --directory ./stack",
        "mqgate serve --config ./stack/mqgate.toml",
    )
)
@_directory_option
@click.option("--brokers", type=click.IntRange(1, 9), default=2, show_default=True, help="How many brokers.")
@click.option("--redis", "has_redis", is_flag=True, help="Redis (or Valkey) as well.")
@click.option("--postgres", "has_postgres", is_flag=True, help="PostgreSQL as well.")
@click.option(
    "--proxy",
    "has_proxy",
    is_flag=True,
    help="RocketMQ's own proxy as well, for gRPC clients. It listens on all interfaces.",
)
@with_json
def up(session: Session, directory: Path, brokers: int, has_redis: bool, has_postgres: bool, has_proxy: bool) -> None:
    """Start the servers, wait until they are ready, and print the configuration for a gateway.

    They run on until `mqgate stack down`. What ran in the directory before is started again, on its ports and with its
    data; what runs already is left alone.
    """
    opened = Stack(directory, progress=note)
    extras: list[Extra] = []
    extras += ["redis"] if has_redis else []
    extras += ["postgres"] if has_postgres else []
    extras += ["proxy"] if has_proxy else []
    is_new = opened.up([BrokerSpec(name=f"broker-{chr(ord('a') + i)}") for i in range(brokers)], extras)
    if not is_new:
        note(f"the stack in {directory} is up already")
    text = configuration(opened)
    (opened.directory / "mqgate.toml").write_text(text, "utf-8")
    click.echo(as_json(_told(opened)) if session.is_json else text, nl=session.is_json)
    note(f"the same is in {opened.directory / 'mqgate.toml'}")
    note(f"end the stack with: mqgate stack down --directory {directory}")


@stack.command()
@_directory_option
@with_json
def status(session: Session, directory: Path) -> None:
    """Tell what lives. The exit code is 1 unless all of it is ready."""
    told = _told(Stack.open(directory))
    click.echo(as_json(told) if session.is_json else table(told["parts"], _COLUMNS))
    if any(part["state"] != "ready" for part in told["parts"]):
        raise click.exceptions.Exit(1)


@stack.command()
@_directory_option
@click.option("--now", "is_now", is_flag=True, help="Do not wait until brokers have tidied up; their data survive it.")
@with_json
def down(session: Session, directory: Path, is_now: bool) -> None:
    """End all servers of the directory; their data stay."""
    opened = Stack(directory)
    living = sum(map(opened.is_alive, opened.parts()))
    if living and not is_now:
        note(f"ending {living} servers; brokers take up to 20 s (--now does not wait)")
    ended = opened.down(patience=0.0 if is_now else _PATIENCE)
    session.confirm({"ended": ended}, f"{ended} servers ended" if ended else "nothing ran")


def configuration(opened: Stack) -> str:
    """What a gateway's mqgate.toml says to use this stack."""
    parts = opened.parts()
    lines = ["[messages]", 'engine = "rocketmq"', "", "[rocketmq]", f'name_servers = ["{opened.name_server}"]']
    if "redis" in parts:
        lines += ["", "[leases]", 'engine = "redis"', "", "[redis]", f'url = "{opened.redis_url}"']
    if "postgres" in parts:
        lines += ["", "[control]", 'engine = "postgres"', "", "[postgres]", f'url = "{opened.postgres_url}"']
    # As a comment: the gateway refuses settings that it does not know.
    lines += ["", f"# Proxy, gRPC: {opened.address('proxy')}"] if "proxy" in parts else []
    return "\n".join([*lines, ""])


def _told(opened: Stack) -> dict[str, Any]:
    parts = opened.parts()
    told: dict[str, Any] = {"directory": str(opened.directory), "nameServers": [], "redis": None, "postgres": None}
    told["nameServers"] = [part.address for part in parts.values() if part.kind == "name-server"]
    told["redis"] = opened.redis_url if "redis" in parts else None
    told["postgres"] = opened.postgres_url if "postgres" in parts else None
    told["parts"] = [
        {
            "name": name,
            "state": "ready" if opened.is_ready(name) else "not ready" if opened.is_alive(name) else "ended",
            "address": part.address,
            "pid": part.pid,
            "log": str(opened.log(name)),
        }
        for name, part in parts.items()
    ]
    return told
