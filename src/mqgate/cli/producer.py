"""`mqgate producer`: producers that publish to a topic."""

from typing import Any

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import given, maybe, name, rate_limit
from mqgate.client import every

__all__ = ["producer"]

_COLUMNS = ("name", "topic", "rateLimit", "createdAt")
_rate_limit_option = click.option(
    "--rate-limit",
    type=maybe(rate_limit),
    metavar="RATE[:BURST]|none",
    help="Messages per second, and the burst size (default: the messages of one second).",
)


@click.group()
def producer() -> None:
    """Create, change and show producers."""


@producer.command(
    epilog=examples(
        "mqgate producer create shop --topic orders",
        "mqgate producer create shop --topic orders --rate-limit 100:500",
    )
)
@click.argument("producer_name", metavar="PRODUCER", type=name)
@click.option("--topic", required=True, help="Topic that the producer publishes to; cannot be changed.")
@_rate_limit_option
@with_session
def create(session: Session, /, producer_name: str, **options: Any) -> None:
    """Create PRODUCER. If it exists, it is not changed; see update."""
    with session.connect() as client:
        session.show(client.producers.create(producer_name, given(**options)))


@producer.command(
    epilog=examples(
        "mqgate producer update shop --rate-limit none",
    )
)
@click.argument("producer_name", metavar="PRODUCER", type=name)
@_rate_limit_option
@with_session
def update(session: Session, /, producer_name: str, **options: Any) -> None:
    """Change the given settings of the existing PRODUCER."""
    with session.connect() as client:
        client.producers.get(producer_name)
        session.show(client.producers.put(producer_name, given(**options)))


@producer.command()
@click.argument("producer_name", metavar="PRODUCER", type=name)
@with_session
def show(session: Session, producer_name: str) -> None:
    """Show the settings of PRODUCER."""
    with session.connect() as client:
        session.show(client.producers.get(producer_name))


@producer.command("list")
@with_session
def list_(session: Session) -> None:
    """List all producers."""
    with session.connect() as client:
        session.show_list(list(every(client.producers.list)), _COLUMNS)


@producer.command()
@click.argument("producer_name", metavar="PRODUCER", type=name)
@with_session
def delete(session: Session, producer_name: str) -> None:
    """Delete PRODUCER. Its messages are kept."""
    with session.connect() as client:
        session.confirm(client.producers.delete(producer_name), f"producer {producer_name} deleted")
