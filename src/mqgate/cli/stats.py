"""`mqgate stats`: what the pipelines found out, on the terminal."""

from typing import Any

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import instant

__all__ = ["stats"]

_COMMON = (
    click.option("--topic", help="Of this topic only."),
    click.option("--group", help="Of this group only."),
    click.option("--from", "since", type=instant, metavar="INSTANT", help="From when on."),
    click.option("--to", "until", type=instant, metavar="INSTANT", help="Up to when; now, unless given."),
    click.option("--limit", type=click.IntRange(1, 1000), help="How many rows; 100 unless given."),
    click.option("--cursor", help="Where the page before ended."),
)
_step = click.option("--step", type=click.Choice(["minute", "hour", "day"]), help="By the minute, unless given.")
_client = click.option("--client-id", "clientId", help="Of this client only.")
_REPORTS: dict[str, tuple[str, tuple[Any, ...], tuple[str, ...]]] = {
    "traffic": (
        "Counts, bytes and redeliveries over time.",
        (
            _step,
            click.option("--producer", help="Of this producer only."),
            _client,
            click.option("--kind", help="One kind of event: published, delivered, acked, refused ..."),
            click.option("--by", help="Names to count by, with commas: topic,kind,producer,group,clientId,outcome."),
        ),
        ("at", "topic", "kind", "producer", "group", "clientId", "outcome", "count", "bytes", "redelivered"),
    ),
    "latency": (
        "How long messages took, as percentiles in seconds.",
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
        "How far behind groups were, how fast that grew, and when it will be gone.",
        (_client,),
        ("at", "topic", "group", "clientId", "lag", "ready", "leased", "waiting", "oldestAge", "growth", "drainTime"),
    ),
    "redelivery": (
        "What was delivered again, died, or was asked for in vain.",
        (_step,),
        ("at", "topic", "group", "delivered", "redelivered", "ratio", "dead", "polls", "emptyPolls", "emptyRatio"),
    ),
    "reconciliation": (
        "Where published messages went, by the hour in which they were published.",
        (click.option("--state", type=click.Choice(["clean", "unknown", "broken"]), help="Hours of this kind only."),),
        ("at", "topic", "group", "state", "published", "acked", "dead", "filtered", "expired", "skipped", "pending",
         "unwatched", "unknown", "missing", "duplicates", "lateAcks", "why"),
    ),
    "findings": (
        "Messages that a reconciliation could not place.",
        (click.option("--finding", help="One kind only: missing, lost, duplicate, acked_again, late_ack."),),
        ("at", "topic", "group", "queue", "offset", "finding", "id", "detail"),
    ),
    "stuck": (
        "Messages delivered often, or long unsettled.",
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
    """Show what the pipelines found out: `mqgate pipeline run` must be running somewhere."""


@stats.command()
@with_session
def pipelines(session: Session) -> None:
    """How the pipelines themselves are."""
    with session.connect() as client:
        session.show(client.stats("pipelines"))


def _command(name: str, about: str, options: tuple[Any, ...], columns: tuple[str, ...]) -> click.Command:
    def show(session: Session, /, **asked: Any) -> None:
        with session.connect() as client:
            page = client.stats(name, **asked)
        shown = [each for each in columns if any(row.get(each) is not None for row in page["items"])]
        session.show_page(page, shown or columns)

    show.__doc__ = about
    command = with_session(show)
    for option in reversed((*_COMMON, *options)):
        command = option(command)
    return click.command(name)(command)


for _name, (_about, _options, _columns) in _REPORTS.items():
    stats.add_command(_command(_name, _about, _options, _columns))
