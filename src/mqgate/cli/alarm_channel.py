"""`mqgate alarm channel`: receivers of notifications."""

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import name
from mqgate.client import every

__all__ = ["channel"]

_name_argument = click.argument("channel_name", metavar="CHANNEL", type=name)


@click.group()
def channel() -> None:
    """Set, test and delete the channels to which notifications are sent."""


@channel.command("list")
@with_session
def list_(session: Session) -> None:
    """List the channels and what happened to their notifications. URLs are shortened, because they contain secrets."""
    with session.connect() as client:
        columns = ("name", "kind", "url", "enabled", "pending", "failed", "lastSentAt", "error")
        session.show_list(list(every(client.alarms.channels)), columns)


@channel.command(
    "set",
    epilog=examples(
        "mqgate alarm channel set ops --kind webhook --target https://ops.example/mqgate --secret-file ops.secret",
        "mqgate alarm channel set chat --kind apprise --target-file slack.url",
    ),
)
@_name_argument
@click.option("--kind", required=True, type=click.Choice(["webhook", "apprise"]), help="Kind of the channel.")
@click.option("--target", help="URL of the webhook, or of apprise. Prefer a file: other users can see command lines.")
@click.option("--target-file", type=click.Path(allow_dash=True), help="File with the URL; - reads stdin.")
@click.option(
    "--secret-file", type=click.Path(allow_dash=True), help="File with the secret that signs webhooks; - reads stdin."
)
@click.option("--enable/--disable", "enabled", default=True, help="Switch the channel on or off.")
@with_session
def set_(
    session: Session,
    /,
    *,
    channel_name: str,
    kind: str,
    target: str | None,
    target_file: str | None,
    secret_file: str | None,
    enabled: bool,
) -> None:
    """Create or replace CHANNEL. Without a secret, a webhook keeps the one that it has."""
    if (target is None) == (target_file is None):
        raise click.UsageError("provide either --target or --target-file")
    url = target if target_file is None else _read(target_file)
    secret = "" if secret_file is None else _read(secret_file)
    settings = {"kind": kind, "url": url, "enabled": enabled} | ({"secret": secret} if secret else {})
    with session.connect() as client:
        session.show(client.alarms.put_channel(channel_name, settings))


def _read(path: str) -> str:
    try:
        with click.open_file(path) as file:
            return str(file.read()).strip()
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from error


@channel.command()
@_name_argument
@with_session
def test(session: Session, channel_name: str) -> None:
    """Send a test notification to CHANNEL. The exit code is 1 if it was not accepted."""
    with session.connect() as client:
        outcome = client.alarms.test_channel(channel_name)
    session.show(outcome)
    if outcome["outcome"] != "sent":
        raise click.exceptions.Exit(1)


@channel.command()
@_name_argument
@with_session
def delete(session: Session, channel_name: str) -> None:
    """Delete CHANNEL. Its pending notifications are given up."""
    with session.connect() as client:
        session.confirm(client.alarms.delete_channel(channel_name), f"channel {channel_name} deleted")
