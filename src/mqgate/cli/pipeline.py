"""`mqgate pipeline`: statistics, archive, replay and reconciliation, computed by Spark from recorded events."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqgate.cli.config_option import config_option
from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.core.errors import InvalidValue, MqgateError
from mqgate.core.times import parse_instant
from mqgate.java import JavaNotFound
from mqgate.settings import Settings, SettingsInvalid
from mqgate.stats.engine import open_stats
from mqgate.stats.store import StatsStore
from mqgate.stats.tables import RetentionClass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqgate.spark.pipelines.config import PipelineConfig

__all__ = ["pipeline"]

_data_dir = click.option(
    "--data-dir", help="Data directory that contains the statistics, unless they are stored in PostgreSQL."
)
_directory = click.option("--directory", help="Directory of the checkpoints and the archive.")
_master = click.option("--master", help="Spark master: local[2], spark://host:7077, yarn, k8s://...")
_SETTINGS = {"data_dir": "sqlite.directory", "directory": "pipelines.directory", "master": "pipelines.master"}


def _instant(text: str) -> datetime:
    try:
        return parse_instant(int(text) if text.isdigit() else text, "instant")
    except InvalidValue as error:
        raise click.BadParameter(str(error)) from error


def _location_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the settings, the directories and the Spark master."""
    for option in (config_option(), _data_dir, _directory, _master):
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
    """Compute statistics, an archive and reconciliations from recorded events, on Spark.

    Requires mqgate[spark] and Java 17 or newer. Settings are read as by `mqgate serve`; --key must be an admin key.
    """


@pipeline.command()
@_location_options
@click.option("--renew", multiple=True, type=click.Choice(["minutes", "archive"]),
              help="Start a new checkpoint at the end of the existing output; repeatable.")  # fmt: skip
@click.option("--once", is_flag=True, help="Run every scheduled job once, wait for the live queries, and exit.")
@with_session
def run(session: Session, /, *, renew: tuple[str, ...], once: bool, **given: Any) -> None:
    """Run the live pipelines and the scheduled jobs until Ctrl-C or SIGTERM."""
    with _driver(session, given) as (settings, plan, store, spark):
        from mqgate.spark.pipelines.driver import run_all  # noqa: PLC0415 - brings Spark

        stopping = threading.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, lambda *_: stopping.set())
        run_all(spark, plan, store, _retentions(settings), renew, stopping, is_once=once, say=note)


@pipeline.command()
@_location_options
@click.option("--from", "since", required=True, type=_instant, metavar="INSTANT", help="Start of the time range.")
@click.option("--to", "until", required=True, type=_instant, metavar="INSTANT", help="End of the time range.")
@click.option("--archive", "is_archived", is_flag=True, help="Read the archive instead of the topic.")
@with_session
def backfill(session: Session, /, *, since: datetime, until: datetime, is_archived: bool, **given: Any) -> None:
    """Compute the statistics of a time range again, and replace the existing ones."""
    if since.timestamp() % 60 or until.timestamp() % 60 or since >= until:
        raise click.UsageError("provide whole minutes, with --from before --to")
    with _driver(session, given) as (_, plan, store, spark):
        from mqgate.spark.pipelines.backfill import backfill as run_backfill  # noqa: PLC0415 - brings Spark

        found = run_backfill(spark, plan, store, since, until, is_archived=is_archived)
        session.show({"items": [{"table": name, "rows": count} for name, count in found.items()]})


@pipeline.command()
@_location_options
@click.option(
    "--from", "since", type=_instant, metavar="INSTANT", help="Start of the time range (default: changed hours only)."
)
@with_session
def rollup(session: Session, /, *, since: datetime | None, **given: Any) -> None:
    """Compute hours and days again from the minutes. Does not need Spark."""
    settings = _settings(given)
    with _errors_reported():
        hours = open_stats(settings, is_writing=True).roll_up(None if since is None else int(since.timestamp() * 1000))
    session.confirm({"hours": hours}, f"{hours} hours rolled up")


@pipeline.command()
@_location_options
@click.option("--hour", type=_instant, metavar="INSTANT", help="Start of the hour (default: the last whole hour).")
@click.option("--topic", multiple=True, help="Only this topic; repeatable.")
@with_session
def reconcile(session: Session, /, *, hour: datetime | None, topic: tuple[str, ...], **given: Any) -> None:
    """Determine the outcome of all messages of an hour. The exit code is 1 if a message is missing."""
    with _driver(session, given) as (_, plan, store, spark):
        from mqgate.spark.pipelines.hourly_reconciliation import reconcile_hour, whole_hours  # noqa: PLC0415 - brings Spark

        at = hour or whole_hours(datetime.now(UTC), 1)[0]
        rows = reconcile_hour(spark, plan, store, at.replace(minute=0, second=0, microsecond=0), topic)
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
@_location_options
@click.option("--to", "target", metavar="TOPIC", help="Replay to this topic, for all its groups.")
@click.option("--to-group", "group", metavar="GROUP", help="Replay to this group of TOPIC only.")
@click.option("--name", required=True, help="Name of the replay; an interrupted replay continues under the same name.")
@click.option(
    "--from", "since", type=_instant, metavar="INSTANT", help="Only messages stored at this instant or later."
)
@click.option("--until", type=_instant, metavar="INSTANT", help="Only messages stored before this instant.")
@click.option("--where", help="Spark SQL condition on id, queue, offset, key, tag, properties, body, storedAt.")
@click.option("--archive", "is_archived", is_flag=True, help="Read the archive instead of the topic.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Maximum number of messages per second.")
@click.option("--dry-run", is_flag=True, help="Show the selected messages without sending them.")
@with_session
def replay(session: Session, /, *, target: str | None, group: str | None, dry_run: bool, **given: Any) -> None:
    """Replay messages of TOPIC under their own ids, to a topic or to one group."""
    if bool(target) == bool(group):
        raise click.UsageError("provide either --to or --to-group")
    locations = {name: given.pop(name) for name in ("config", "data_dir", "directory", "master")}
    with _driver(session, locations, has_store=False) as (_, plan, _, spark):
        from mqgate.spark.pipelines.replay import Replay, chosen, count  # noqa: PLC0415 - brings Spark
        from mqgate.spark.pipelines.replay import replay as send  # noqa: PLC0415 - same

        request = Replay(topic=target, group=group, **given)
        if dry_run:
            session.show({"items": count(chosen(spark, plan, request))})
            note("dry run, nothing was sent")
            return
        sent = send(spark, plan, request)
    session.confirm({"sent": sent}, f"{sent} messages sent")


@contextmanager
def _driver(
    session: Session, given: dict[str, Any], *, has_store: bool = True
) -> Iterator[tuple[Settings, "PipelineConfig", StatsStore, "SparkSession"]]:
    """Yield settings, plan, store and Spark session. Errors are printed and end the command."""
    settings = _settings(given)
    with _errors_reported():
        store = open_stats(settings, is_writing=True) if has_store else None
        plan = _plan(session, settings)
        from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

        from mqgate.spark.pipelines.config import start  # noqa: PLC0415 - brings Spark

        spark = start(plan)
        try:
            yield settings, plan, store, spark  # type: ignore[misc]  # only a replay has no store, and does not use it
        except PySparkException as error:
            raise RuntimeError(str(error).partition("\n")[0]) from error
        finally:
            spark.stop()


@contextmanager
def _errors_reported() -> Iterator[None]:
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
    with _errors_reported():
        flags = {_SETTINGS[name]: given[name] for name in _SETTINGS if given.get(name) is not None}
        settings = Settings.load(given.get("config"), flags=flags)
    for deprecation in settings.deprecations:
        note(deprecation)
    return settings


def _plan(session: Session, settings: Settings) -> "PipelineConfig":
    from mqgate.spark.session import PysparkMissing  # noqa: PLC0415 - imports nothing of Spark yet

    try:
        from mqgate.spark.pipelines.config import PipelineConfig  # noqa: PLC0415 - brings Spark
    except ModuleNotFoundError as error:
        raise PysparkMissing from error

    options = settings.pipelines
    return PipelineConfig(
        url=session.url,
        key=session.key,
        directory=Path(options.directory).absolute(),
        master=options.master,
        events_topic=options.events_topic,
        trigger=options.trigger,
        max_offsets=options.max_offsets,
        max_messages=options.max_messages,
        minutes=settings.stats.minutes,
        archive=options.archive,
        archive_retention=options.archive_retention or None,
        reconcile_hours=options.reconcile_hours,
        stuck_deliveries=options.stuck_deliveries,
        stuck_age=options.stuck_age,
    )


def _retentions(settings: Settings) -> dict[RetentionClass, timedelta]:
    spans = (span for span in RetentionClass if span is not RetentionClass.FOREVER)
    return {span: getattr(settings.stats, span.value) for span in spans}
