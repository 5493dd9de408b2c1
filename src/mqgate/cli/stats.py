"""`mqgate stats`: reports of the pipelines."""

from typing import Any

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import instant

__all__ = ["stats"]

_COMMON = (
    click.option("--topic", help="Only this topic."),
    click.option("--group", help="Only this group."),
    click.option("--from", "since", type=instant, metavar="INSTANT", help="Start of the time range."),
    click.option("--to", "until", type=instant, metavar="INSTANT", help="End of the time range (default now)."),
    click.option("--limit", type=click.IntRange(1, 1000), help="Number of rows (default 100)."),
    click.option("--cursor", help="Cursor of the previous page."),
)
_step = click.option("--step", type=click.Choice(["minute", "hour", "day"]), help="Resolution (default minute).")
_client = click.option("--client-id", "clientId", help="Only this client.")
_REPORTS: dict[str, tuple[str, tuple[Any, ...], tuple[str, ...]]] = {
    "traffic": (
        "Counts, bytes and redeliveries over time.",
        (
            _step,
            click.option("--producer", help="Only this producer."),
            _client,
            click.option("--kind", help="Only this kind of event: published, delivered, acked, refused ..."),
            click.option("--by", help="Columns to group by: topic,kind,producer,group,clientId,outcome."),
        ),
        ("at", "topic", "kind", "producer", "group", "clientId", "outcome", "count", "bytes", "redelivered"),
    ),
    "latency": (
        "Latency percentiles in seconds.",
        (
            _step,
            click.option(
                "--measure",
                type=click.Choice(["delivery", "ack", "work"]),
                help="Publish to first delivery, publish to ack, or delivery to ack.",
            ),
        ),
        ("at", "topic", "group", "measure", "count", "p50", "p90", "p95", "p99"),
    ),
    "lag": (
        "Lag of groups, its growth, and the estimated time until it is drained.",
        (_client,),
        ("at", "topic", "group", "clientId", "lag", "ready", "leased", "waiting", "oldestAge", "growth", "drainTime"),
    ),
    "redelivery": (
        "Redeliveries, dead letters and empty polls.",
        (_step,),
        ("at", "topic", "group", "delivered", "redelivered", "ratio", "dead", "polls", "emptyPolls", "emptyRatio"),
    ),
    "reconciliation": (
        "Outcomes of published messages, by the hour of their publication.",
        (click.option("--state", type=click.Choice(["clean", "unknown", "broken"]), help="Only hours in this state."),),
        ("at", "topic", "group", "state", "published", "acked", "dead", "filtered", "expired", "skipped", "pending",
         "unwatched", "unknown", "missing", "duplicates", "lateAcks", "why"),
    ),
    "findings": (
        "Messages for which a reconciliation found a discrepancy.",
        (click.option("--finding", help="Only this kind: missing, lost, duplicate, acked_again, late_ack."),),
        ("at", "topic", "group", "queue", "offset", "finding", "id", "detail"),
    ),
    "stuck": (
        "Messages that were delivered many times, or are unsettled for a long time.",
        (),
        ("topic", "group", "queue", "offset", "id", "clientId", "delivery", "storedAt", "at", "reason"),
    ),
}  # fmt: skip


@click.group(
    epilog=examples(
        "mqgate stats traffic --topic orders --step hour",
        "mqgate stats latency --group billing --measure ack",
        "mqgate stats reconciliation --state broken",
    )
)
def stats() -> None:
    """Show the reports of the pipelines. Requires a running `mqgate pipeline run`."""


@stats.command()
@with_session
def pipelines(session: Session) -> None:
    """Show the state of the pipelines."""
    with session.connect() as client:
        session.show(client.stats("pipelines"))


def _command(name: str, about: str, options: tuple[Any, ...], columns: tuple[str, ...]) -> click.Command:
    def show(session: Session, /, **query: Any) -> None:
        with session.connect() as client:
            page = client.stats(name, **query)
        shown = [column for column in columns if any(row.get(column) is not None for row in page["items"])]
        session.show_page(page, shown or columns)

    show.__doc__ = about
    command = with_session(show)
    for option in reversed((*_COMMON, *options)):
        command = option(command)
    return click.command(name)(command)


for _name, (_about, _options, _columns) in _REPORTS.items():
    stats.add_command(_command(_name, _about, _options, _columns))
