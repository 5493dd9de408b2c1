"""`mqgate alarm silence`: periods without notifications."""

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import instant, name
from mqgate.client import every

__all__ = ["silence"]


@click.group()
def silence() -> None:
    """Suppress notifications for a while. Alarms are still evaluated and listed."""


@silence.command("list")
@with_session
def list_(session: Session) -> None:
    """List the silences that have not ended."""
    with session.connect() as client:
        columns = ("id", "rule", "subject", "endsAt", "actor", "reason")
        session.show_list(list(every(client.alarms.silences)), columns)


@silence.command(
    epilog=examples(
        "mqgate alarm silence add --subject billing --until 2030-01-31T12:00:00Z --reason maintenance",
        "mqgate alarm silence add --rule late_timers --until 2030-01-31T12:00:00Z",
    )
)
@click.option("--until", required=True, type=instant, metavar="INSTANT", help="End of the silence.")
@click.option("--rule", type=name, help="Only this rule (default: all).")
@click.option("--subject", type=name, help="Only this group, topic or pipeline (default: all).")
@click.option("--reason", help="Reason, stored with the silence and in the audit log.")
@with_session
def add(session: Session, until: int | str, rule: str | None, subject: str | None, reason: str | None) -> None:
    """Suppress notifications until an instant."""
    with session.connect() as client:
        session.show(client.alarms.silence(until, rule=rule, subject=subject, reason=reason))


@silence.command()
@click.argument("silence_id", metavar="ID", type=name)
@with_session
def end(session: Session, silence_id: str) -> None:
    """End the silence ID now."""
    with session.connect() as client:
        session.confirm(client.alarms.end_silence(silence_id), f"silence {silence_id} ended")
