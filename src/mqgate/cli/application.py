"""`mqgate application`: apply for entries and operations, and decide."""

import json
from typing import Any

import click

from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import given, name
from mqgate.client import every
from mqgate.client.requests import Json, get, post

__all__ = ["application"]

_KINDS = ("topic", "producer", "group", "key", "rate", "seek", "skip", "pause", "resume", "deletion")
_STATES = ("submitted", "approved", "declined", "withdrawn", "applied", "failed")
_COLUMNS = ("id", "kind", "topic", "producer", "group", "team", "applicant", "state", "createdAt")
_reason_option = click.option("--reason", help="Why; stored with the decision and in the audit trail.")


@click.group()
def application() -> None:
    """Apply for topics, producers, groups, keys and operations; approve and decline."""


@application.command(
    epilog=examples(
        "mqgate application create topic --topic orders --settings '{\"queues\": 8}' --reason 'a new shop'",
        "mqgate application create key --producer shop",
        "mqgate application create skip --group billing --reason 'old test data'",
    )
)
@click.argument("kind", type=click.Choice(_KINDS))
@click.option("--topic", type=name, help="Topic that the application concerns.")
@click.option("--producer", type=name, help="Producer that the application concerns.")
@click.option("--group", type=name, help="Group that the application concerns.")
@click.option("--team", type=name, help="Team that will own a new entry; default: your only team.")
@click.option("--settings", metavar="JSON", help="Settings of the entry, or of the operation, as in the API.")
@_reason_option
@with_session
def create(session: Session, /, settings: str | None, **options: Any) -> None:
    """Apply for something of KIND."""
    try:
        decoded = None if settings is None else json.loads(settings)
    except ValueError as error:
        raise click.UsageError(f"--settings is not valid JSON: {error}") from error
    with session.connect() as client:
        session.show(client.call(post(given(settings=decoded, **options), "applications", is_repeatable=False)))


@application.command("list")
@click.option("--state", type=click.Choice(_STATES), help="List applications in this state only.")
@click.option("--mine", is_flag=True, help="List own applications only.")
@with_session
def list_(session: Session, state: str | None, mine: bool) -> None:
    """List applications, the newest first."""
    with session.connect() as client:

        def page(cursor: str | None = None) -> Json:
            query = {"state": state, "mine": "true" if mine else None, "cursor": cursor}
            return client.call(get("applications", **query))

        session.show_list(list(every(page)), _COLUMNS)


@application.command()
@click.argument("application_id", metavar="ID", type=name)
@with_session
def show(session: Session, application_id: str) -> None:
    """Show the application ID."""
    with session.connect() as client:
        session.show(client.call(get("applications", application_id)))


@application.command()
@click.argument("application_id", metavar="ID", type=name)
@_reason_option
@with_session
def approve(session: Session, application_id: str, reason: str | None) -> None:
    """Approve the application ID of somebody else. It is applied in the background."""
    _decide(session, application_id, "approve", reason)


@application.command()
@click.argument("application_id", metavar="ID", type=name)
@click.option("--reason", required=True, help="Why; the applicant reads it.")
@with_session
def decline(session: Session, application_id: str, reason: str) -> None:
    """Decline the application ID."""
    _decide(session, application_id, "decline", reason)


@application.command()
@click.argument("application_id", metavar="ID", type=name)
@_reason_option
@with_session
def withdraw(session: Session, application_id: str, reason: str | None) -> None:
    """Withdraw the own application ID."""
    _decide(session, application_id, "withdraw", reason)


@application.command()
@click.argument("application_id", metavar="ID", type=name)
@_reason_option
@with_session
def retry(session: Session, application_id: str, reason: str | None) -> None:
    """Apply the failed application ID again."""
    _decide(session, application_id, "retry", reason)


@application.command("key")
@click.argument("application_id", metavar="ID", type=name)
@with_session
def take_key(session: Session, application_id: str) -> None:
    """Take the key that the own application ID was approved for. It is shown only once."""
    with session.connect() as client:
        session.show(client.call(post({}, "applications", application_id, "key", is_repeatable=False)))
    note("store the key now: it is not shown again")


def _decide(session: Session, application_id: str, action: str, reason: str | None) -> None:
    with session.connect() as client:
        session.show(
            client.call(post(given(reason=reason), "applications", application_id, action, is_repeatable=False))
        )
