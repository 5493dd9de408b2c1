"""`mqgate pipeline`: figures, archive, replay and proofs, computed by Spark from what gateways tell."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.core.errors import InvalidValue, MqgateError
from mqgate.core.times import parse_instant
from mqgate.java import JavaNotFound
from mqgate.settings import Settings, SettingsInvalid
from mqgate.stats.opening import open_stats
from mqgate.stats.store import StatsStore
from mqgate.stats.tables import Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqgate.spark.pipelines.plan import Plan

__all__ = ["pipeline"]

_config = click.option("--config", type=click.Path(path_type=Path), envvar="MQGATE_CONFIG", help="mqgate.toml to read.")
_data_dir = click.option("--data-dir", help="Data directory, where the figures lie unless they are in PostgreSQL.")
_directory = click.option("--directory", help="Where checkpoints and the archive lie.")
_master = click.option("--master", help="Where Spark runs: local[2], spark://host:7077, yarn, k8s://...")
_SETTINGS = {"data_dir": "sqlite.directory", "directory": "pipelines.directory", "master": "pipelines.master"}


def _instant(text: str) -> datetime:
    try:
        return parse_instant(int(text) if text.isdigit() else text, "instant")
    except InvalidValue as error:
        raise click.BadParameter(str(error)) from error


def _placed(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where things are."""
    for option in (_config, _data_dir, _directory, _master):
        command = option(command)
    return command


@click.group(
    epilog=examples(
        "mqgate pipeline run",
        "mqgate pipeline run --master spark://10.0.0.1:7077 --directory /mnt/shared/pipelines",
        "mqgate pipeline reconcile --hour 2026-11-16T12:00:00Z",
    )
)
def pipeline() -> None:
    """Compute figures, an archive and proofs from what gateways tell: on Spark, beside the gateway.

    Needs mqgate[spark] and Java 17 or newer. Settings are found as by `mqgate serve`; --key must be an administrator's.
    """


@pipeline.command()
@_placed
@click.option("--renew", multiple=True, type=click.Choice(["minutes", "archive"]),
              help="Begin a new checkpoint where its output ends; repeatable.")  # fmt: skip
@click.option("--once", is_flag=True, help="Do every scheduled job once, wait for the live queries, and end.")
@with_session
def run(session: Session, /, *, renew: tuple[str, ...], once: bool, **given: Any) -> None:
    """Run the live pipelines and, on their schedules, the others, until told to stop (Ctrl-C or SIGTERM)."""
    with _driver(session, given) as (settings, plan, store, spark):
        from mqgate.spark.pipelines.running import run_all  # noqa: PLC0415 - brings Spark

        stopping = threading.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, lambda *_: stopping.set())
        run_all(spark, plan, store, _kept(settings), renew, stopping, is_once=once, say=note)


@pipeline.command()
@_placed
@click.option("--from", "since", required=True, type=_instant, metavar="INSTANT", help="From when on.")
@click.option("--to", "until", required=True, type=_instant, metavar="INSTANT", help="Up to when.")
@click.option("--archive", "is_archived", is_flag=True, help="Read the archive, not the topic.")
@with_session
def backfill(session: Session, /, *, since: datetime, until: datetime, is_archived: bool, **given: Any) -> None:
    """Count the figures of a span of time again, and put them in the place of those that are there."""
    if since.timestamp() % 60 or until.timestamp() % 60 or since >= until:
        raise click.UsageError("give whole minutes, the earlier one first")
    with _driver(session, given) as (_, plan, store, spark):
        from mqgate.spark.pipelines.backfill import backfill as fill  # noqa: PLC0415 - brings Spark

        found = fill(spark, plan, store, since, until, is_archived=is_archived)
        session.show({"items": [{"table": name, "rows": count} for name, count in found.items()]})


@pipeline.command()
@_placed
@click.option("--from", "since", type=_instant, metavar="INSTANT", help="From when on; unless given, what changed.")
@with_session
def rollup(session: Session, /, *, since: datetime | None, **given: Any) -> None:
    """Make hours and days anew from the minutes. Needs no Spark."""
    settings = _settings(given)
    with _told():
        hours = open_stats(settings, is_writing=True).roll_up(None if since is None else int(since.timestamp() * 1000))
    session.confirm({"hours": hours}, f"{hours} hours rolled up")


@pipeline.command()
@_placed
@click.option("--hour", type=_instant, metavar="INSTANT", help="An hour's beginning; the last whole one unless given.")
@click.option("--topic", multiple=True, help="Of this topic only; repeatable.")
@with_session
def reconcile(session: Session, /, *, hour: datetime | None, topic: tuple[str, ...], **given: Any) -> None:
    """Prove where the messages of an hour went. The exit code is 1 if any is missing."""
    with _driver(session, given) as (_, plan, store, spark):
        from mqgate.spark.pipelines.judging import judge_hour, whole_hours  # noqa: PLC0415 - brings Spark

        at = hour or whole_hours(datetime.now(UTC), 1)[0]
        rows = judge_hour(spark, plan, store, at.replace(minute=0, second=0, microsecond=0), topic)
    columns = ("topic", "group", "state", "published", "acked", "dead", "filtered", "expired", "skipped", "pending",
               "unwatched", "unknown", "missing", "duplicates", "late_acks", "why")  # fmt: skip
    session.show({"items": rows}, columns)
    if any(row["missing"] for row in rows):
        raise click.exceptions.Exit(1)


@pipeline.command(
    epilog=examples(
        "mqgate pipeline replay orders --to orders-again --name fix-17 --from 2026-11-16T12:00:00Z --dry-run",
        "mqgate pipeline replay orders --to orders-again --name fix-17 --where \"tag = 'paid'\" --rate 100",
        "mqgate pipeline replay orders --to-group billing --name fix-18 --from 2026-11-16T12:00:00Z --archive",
    )
)
@click.argument("source", metavar="TOPIC")
@_placed
@click.option("--to", "target", metavar="TOPIC", help="Into this topic, for all its groups.")
@click.option("--to-group", "group", metavar="GROUP", help="For this group of TOPIC alone.")
@click.option("--name", required=True, help="A name of this replay: one that was interrupted goes on under it.")
@click.option("--from", "since", type=_instant, metavar="INSTANT", help="Stored from then on.")
@click.option("--until", type=_instant, metavar="INSTANT", help="Stored before then.")
@click.option("--where", help="A condition in Spark's SQL on id, queue, offset, key, tag, properties, body, storedAt.")
@click.option("--archive", "is_archived", is_flag=True, help="Read the archive, not the topic.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Most messages a second.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@with_session
def replay(session: Session, /, *, target: str | None, group: str | None, dry_run: bool, **given: Any) -> None:
    """Store messages of TOPIC once more, under their own ids: in a topic, or for one group."""
    if bool(target) == bool(group):
        raise click.UsageError("give either --to or --to-group")
    placed = {name: given.pop(name) for name in ("config", "data_dir", "directory", "master")}
    with _driver(session, placed, has_store=False) as (_, plan, _, spark):
        from mqgate.spark.pipelines.replay import Replay, chosen, count  # noqa: PLC0415 - brings Spark
        from mqgate.spark.pipelines.replay import replay as send  # noqa: PLC0415 - same

        wanted = Replay(topic=target, group=group, **given)
        if dry_run:
            session.show({"items": count(chosen(spark, plan, wanted))})
            note("a dry run: nothing was sent")
            return
        sent = send(spark, plan, wanted)
    session.confirm({"sent": sent}, f"{sent} messages sent")


@contextmanager
def _driver(
    session: Session, given: dict[str, Any], *, has_store: bool = True
) -> Iterator[tuple[Settings, "Plan", StatsStore, "SparkSession"]]:
    """Settings, store and Spark; what is wrong with them is told, and ends the command."""
    settings = _settings(given)
    with _told():
        store = open_stats(settings, is_writing=True) if has_store else None
        plan = _plan(session, settings)
        from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

        from mqgate.spark.pipelines.plan import start  # noqa: PLC0415 - brings Spark

        spark = start(plan)
        try:
            yield settings, plan, store, spark  # type: ignore[misc]  # only a replay has none, and asks for none
        except PySparkException as error:
            raise RuntimeError(str(error).partition("\n")[0]) from error
        finally:
            spark.stop()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except SettingsInvalid as error:
        for fault in error.faults:
            click.echo(f"error: {fault}", err=True)
        sys.exit(2)
    except (MqgateError, JavaNotFound, ImportError, OSError, ValueError, RuntimeError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def _settings(given: dict[str, Any]) -> Settings:
    config = given.get("config")
    if config is None and Path("mqgate.toml").exists():
        config = Path("mqgate.toml")
    with _told():
        flags = {_SETTINGS[name]: given[name] for name in _SETTINGS if given.get(name) is not None}
        settings = Settings.load(config, flags=flags)
    for deprecation in settings.deprecations:
        note(deprecation)
    return settings


def _plan(session: Session, settings: Settings) -> "Plan":
    from mqgate.spark.session import PysparkMissing  # noqa: PLC0415 - imports nothing of Spark yet

    try:
        from mqgate.spark.pipelines.plan import Plan  # noqa: PLC0415 - brings Spark
    except ModuleNotFoundError as error:
        raise PysparkMissing from error

    asked = settings.pipelines
    retention = asked.archive_retention
    return Plan(
        url=session.url,
        key=session.key,
        directory=Path(asked.directory).absolute(),
        master=asked.master,
        events_topic=asked.events_topic,
        trigger=asked.trigger,
        max_offsets=asked.max_offsets,
        max_messages=asked.max_messages,
        minutes=settings.stats.minutes,
        archive=asked.archive,
        archive_retention=retention or None,
        reconcile_hours=asked.reconcile_hours,
        stuck_deliveries=asked.stuck_deliveries,
        stuck_age=asked.stuck_age,
    )


def _kept(settings: Settings) -> dict[Span, timedelta]:
    spans = (span for span in Span if span is not Span.FOREVER)
    return {span: getattr(settings.stats, span.value) for span in spans}
