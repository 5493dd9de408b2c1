"""`mqgate topic`: named sets of queues."""

from typing import Any

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import duration, given, maybe, name
from mqgate.client import every

__all__ = ["topic"]

_COLUMNS = ("name", "queues", "retention", "retentionBytes", "createdAt")


@click.group()
def topic() -> None:
    """Create, change and show topics."""


def _settings(command: Any) -> Any:
    for option in (
        click.option(
            "--retention-bytes",
            type=maybe(int),
            metavar="BYTES|none",
            help="Delete the oldest messages above this size.",
        ),
        click.option(
            "--retention",
            type=maybe(duration),
            metavar="DURATION|none",
            help="Delete messages older than this: 7d, 12h.",
        ),
        click.option("--queues", type=int, help="Number of queues; it can only be increased."),
    ):
        command = option(command)
    return command


@topic.command(
    epilog=examples(
        "mqgate topic create orders",
        "mqgate topic create orders --queues 16 --retention 7d",
    )
)
@click.argument("topic_name", metavar="TOPIC", type=name)
@_settings
@with_session
def create(session: Session, /, topic_name: str, **options: Any) -> None:
    """Create TOPIC. If it exists, it is not changed; see update."""
    with session.connect() as client:
        session.show(client.topics.create(topic_name, given(**options)))


@topic.command(
    epilog=examples(
        "mqgate topic update orders --queues 32",
    )
)
@click.argument("topic_name", metavar="TOPIC", type=name)
@_settings
@with_session
def update(session: Session, /, topic_name: str, **options: Any) -> None:
    """Change the given settings of the existing TOPIC."""
    with session.connect() as client:
        client.topics.get(topic_name)
        session.show(client.topics.put(topic_name, given(**options)))


@topic.command()
@click.argument("topic_name", metavar="TOPIC", type=name)
@with_session
def show(session: Session, topic_name: str) -> None:
    """Show the settings of TOPIC."""
    with session.connect() as client:
        session.show(client.topics.get(topic_name))


@topic.command("list")
@with_session
def list_(session: Session) -> None:
    """List all topics."""
    with session.connect() as client:
        session.show_list(list(every(client.topics.list)), _COLUMNS)


@topic.command()
@click.argument("topic_name", metavar="TOPIC", type=name)
@with_session
def delete(session: Session, topic_name: str) -> None:
    """Delete TOPIC and its messages. It must have no producers and no groups."""
    with session.connect() as client:
        session.confirm(client.topics.delete(topic_name), f"topic {topic_name} deleted")
