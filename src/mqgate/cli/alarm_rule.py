"""`mqgate alarm rule`: thresholds."""

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import duration, name

__all__ = ["rule"]

_rule_argument = click.argument("rule_name", metavar="RULE", type=name)
_subject = click.option("--subject", type=name, help="Only for this group, topic or pipeline.")


@click.group()
def rule() -> None:
    """Show and set the thresholds of the alarm rules."""


@rule.command("list")
@with_session
def list_(session: Session) -> None:
    """List the rules, followed by the settings of single subjects."""
    with session.connect() as client:
        found = client.alarms.rules()
    if session.is_json:
        session.show(found)
        return
    columns = ("threshold", "unit", "for", "enabled")
    rows = [row | {"subject": f"every {row['subject']}"} for row in found["items"]]
    rows = [each for row in rows for each in (row, *(row | own for own in row["subjects"]))]
    session.show_list(rows, ("rule", "subject", *columns))


@rule.command(
    "set",
    epilog=examples(
        "mqgate alarm rule set backlog_count --threshold 50000 --for 10m",
        "mqgate alarm rule set backlog_age --subject billing --threshold 60",
        "mqgate alarm rule set no_consumer --subject nightly --disable",
    ),
)
@_rule_argument
@_subject
@click.option("--threshold", type=click.FloatRange(min=0), help="The alarm fires above this value.")
@click.option("--for", "hold", type=duration, metavar="DURATION", help="Time that the value must stay above it.")
@click.option("--enable/--disable", "enabled", default=None, help="Switch the rule on or off.")
@with_session
def set_(
    session: Session,
    /,
    *,
    rule_name: str,
    subject: str | None,
    threshold: float | None,
    hold: float | str | None,
    enabled: bool | None,
) -> None:
    """Set the threshold of RULE, for all subjects or for one. What is left out keeps its value."""
    settings = {"threshold": threshold, "for": hold, "enabled": enabled}
    settings = {member: value for member, value in settings.items() if value is not None}
    if not settings:
        raise click.UsageError("provide at least one of --threshold, --for, --enable and --disable")
    with session.connect() as client:
        session.show(client.alarms.put_rule(rule_name, settings, subject))


@rule.command()
@_rule_argument
@_subject
@with_session
def reset(session: Session, rule_name: str, subject: str | None) -> None:
    """Return RULE to its defaults, for all subjects or for one."""
    with session.connect() as client:
        response = client.alarms.reset_rule(rule_name, subject)
        session.confirm(response, f"rule {rule_name} reset{f' for {subject}' if subject else ''}")
