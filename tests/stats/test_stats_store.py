"""Guarantees of the statistics store, on SQLite and on PostgreSQL."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mqgate.core.errors import FiguresNotFound, StorageFull, StorageRefused, StorageUnavailable
from mqgate.settings import Settings, SqliteSettings
from mqgate.stats.engine import FILE, open_stats
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import Applied, Database, StatsStore
from mqgate.stats.tables import SCHEMA_VERSION, RetentionClass

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def traffic(at: int = NOON_MS, n: int = 1, topic: str = "orders", kind: str = "published") -> tuple[Any, ...]:
    return (at, topic, kind, "shop", "", "", "", n, 10 * n, 0)


def counted(store: StatsStore, step: str = "minute") -> dict[int, int]:
    return dict(store.select(f"SELECT at, sum(n) FROM stats_traffic_{step} GROUP BY at"))  # noqa: S608 - our own names


def test_a_repeated_batch_is_not_counted_again(store: StatsStore) -> None:
    """Spark repeats its last batch after a crash, and the figures must stay exact."""
    batch = Applied("minutes", "run", 7)

    assert store.apply(batch, {"traffic_minute": [traffic(n=5)]}, now=NOON)
    assert not store.apply(batch, {"traffic_minute": [traffic(n=5)]}, now=NOON)

    assert counted(store) == {NOON_MS: 5}
    assert store.is_applied(batch)


def test_the_same_number_under_another_checkpoint_is_another_batch(store: StatsStore) -> None:
    """A new checkpoint numbers its batches from 0, so numbers alone do not identify a batch."""
    store.apply(Applied("minutes", "old", 0), {"traffic_minute": [traffic()]}, now=NOON)

    assert store.apply(Applied("minutes", "new", 0), {"traffic_minute": [traffic()]}, now=NOON)


def test_a_superseded_batch_is_rejected(store: StatsStore) -> None:
    """If two drivers read the same messages by mistake, the messages are counted once."""
    rows = {"traffic_minute": [traffic()], "positions": [("minutes", "events", "local:0", 5)]}

    assert store.apply(Applied("minutes", "a", 0), rows, now=NOON, after=[])
    assert not store.apply(Applied("minutes", "b", 0), rows, now=NOON, after=[])

    assert counted(store) == {NOON_MS: 1}


def test_counts_of_a_minute_add_up(store: StatsStore) -> None:
    """The events of a minute arrive in several batches, and late events hours later."""
    for number, n in enumerate((3, 4)):
        store.apply(Applied("minutes", "run", number), {"traffic_minute": [traffic(n=n)]}, now=NOON)

    assert store.select('SELECT n, bytes FROM stats_traffic_minute WHERE "group" = ?', ("",)) == [(7, 70)]


def test_a_failed_batch_stores_nothing(store: StatsStore) -> None:
    """Half a batch would be counted twice when the batch is repeated."""
    with pytest.raises(StorageUnavailable):
        store.apply(
            Applied("minutes", "run", 1),
            {"traffic_minute": [traffic()], "latency_minute": [(NOON_MS, None, "g", "ack", 3, 1)]},
            now=NOON,
        )

    assert counted(store) == {}
    assert not store.is_applied(Applied("minutes", "run", 1))


def test_the_newest_sample_of_a_minute_is_kept(store: StatsStore) -> None:
    """Samples of several gateways arrive in any order."""

    def sample(at: int, ready: int) -> tuple[Any, ...]:
        return (NOON_MS, "orders", "billing", "", "local:0", at, 0, 9, 4, ready, 0, 0, None)

    store.put({"lag_minute": [sample(NOON_MS + 30, 5)]})
    store.put({"lag_minute": [sample(NOON_MS + 10, 7)]})
    store.put({"lag_minute": [sample(NOON_MS + 50, 3)]})

    assert store.select("SELECT ready FROM stats_lag_minute") == [(3,)]


def test_hours_and_days_are_the_sums_of_their_minutes(store: StatsStore) -> None:
    """This includes late events, and repeated roll-ups change nothing."""
    first = [traffic(NOON_MS), traffic(NOON_MS + MINUTE), traffic(NOON_MS + HOUR)]
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": first}, now=NOON, oldest=NOON_MS)
    store.roll_up()
    late = [traffic(NOON_MS - DAY, n=9)]
    store.apply(Applied("minutes", "run", 2), {"traffic_minute": late}, now=NOON, oldest=NOON_MS - DAY)

    store.roll_up()
    store.roll_up(NOON_MS - 2 * DAY)

    assert counted(store, "hour") == {NOON_MS: 2, NOON_MS + HOUR: 1, NOON_MS - DAY: 9}
    assert counted(store, "day") == {NOON_MS - 12 * HOUR: 3, NOON_MS - 36 * HOUR: 9}


def test_a_roll_up_without_changes_does_nothing(store: StatsStore) -> None:
    """The schedule calls it every minute."""
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": [traffic()]}, now=NOON, oldest=NOON_MS)

    assert store.roll_up() == 1
    assert store.roll_up() == 0


def test_hours_are_kept_when_their_minutes_are_deleted(store: StatsStore) -> None:
    """Retention deletes minutes by whole days, and later roll-ups must not change those hours."""
    old = NOON_MS - 10 * DAY
    for number, at in enumerate((old, NOON_MS)):
        store.apply(Applied("minutes", "run", number), {"traffic_minute": [traffic(at)]}, now=NOON, oldest=at)
    store.roll_up()

    gone = store.tidy(NOON, {RetentionClass.MINUTES: timedelta(days=7), RetentionClass.HOURS: timedelta(days=90)})
    store.roll_up(old)

    assert gone == {"traffic_minute": 1}
    assert counted(store, "hour") == {old: 1, NOON_MS: 1}


def test_retention_rolls_up_minutes_before_it_deletes_them(store: StatsStore) -> None:
    """After a long pause of the driver, retention may run before the roll-up."""
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": [traffic()]}, now=NOON, oldest=NOON_MS)
    week = timedelta(days=7)

    gone = store.tidy(NOON + timedelta(days=30), {RetentionClass.MINUTES: week, RetentionClass.BATCHES: week})

    assert gone == {"traffic_minute": 1}
    assert counted(store, "hour") == {NOON_MS: 1}


def test_retention_keeps_the_newest_batch_of_a_checkpoint(store: StatsStore) -> None:
    """A crashed driver may restart after any time and then repeats this batch."""
    for run, number in (("old", 7), ("new", 0), ("new", 1)):
        store.apply(Applied("minutes", run, number), {"traffic_minute": [traffic()]}, now=NOON, oldest=NOON_MS)

    gone = store.tidy(NOON + timedelta(days=4), {RetentionClass.BATCHES: timedelta(days=3)})

    assert gone == {"applied": 1}
    assert store.is_applied(Applied("minutes", "old", 7))
    assert store.is_applied(Applied("minutes", "new", 1))


def a_month(store: StatsStore) -> None:
    """Store one event per day for a month, and delete minutes older than a week."""
    for number in range(30):
        at = NOON_MS - number * DAY
        store.apply(Applied("minutes", "run", number), {"traffic_minute": [traffic(at)]}, now=NOON, oldest=at)
    store.roll_up()
    store.tidy(NOON, {RetentionClass.MINUTES: timedelta(days=7), RetentionClass.HOURS: timedelta(days=25)})


def test_a_backfill_of_an_old_hour_changes_no_other_hour(store: StatsStore) -> None:
    """The minutes of the other hours are deleted, so these hours could not be recomputed."""
    a_month(store)
    hours, days = counted(store, "hour"), counted(store, "day")
    old, older = NOON_MS - 20 * DAY, NOON_MS - 28 * DAY

    for _ in range(2):
        store.replace_minutes(old, old + HOUR, {"traffic_minute": [traffic(old, n=5)]}, after=NOON_MS + 1)
        store.roll_up(older)
    assert counted(store, "hour") == hours | {old: 5}
    assert counted(store, "day") == days | {old - 12 * HOUR: 5}

    store.replace_minutes(old - 30 * MINUTE, old + 30 * MINUTE, {"traffic_minute": []}, after=NOON_MS + 1)
    store.replace_minutes(older, older + HOUR, {"traffic_minute": [traffic(older, n=5)]}, after=NOON_MS + 1)
    assert counted(store, "hour") == hours | {old: 5, older: 5}, "half an hour says nothing of the whole"
    assert counted(store, "day") == days | {old - 12 * HOUR: 5}, "nor does an hour of its day, when the others are gone"


def test_late_events_are_added_to_hours_without_minutes(store: StatsStore) -> None:
    """A pipeline that was stopped for days counts them after retention deleted the minutes."""
    a_month(store)
    hours, days, at = counted(store, "hour"), counted(store, "day"), NOON_MS - 8 * DAY
    late = [traffic(at + MINUTE, n=2), traffic(at + 2 * MINUTE, n=3)]

    store.apply(Applied("minutes", "run", 30), {"traffic_minute": late}, now=NOON, oldest=at + MINUTE)
    store.roll_up()
    store.tidy(NOON, {RetentionClass.MINUTES: timedelta(days=7)})

    assert counted(store, "hour") == hours | {at: 6}
    assert counted(store, "day") == days | {at - 12 * HOUR: 6}


def test_a_store_without_recorded_retention_keeps_its_hours(store: StatsStore, database: Database) -> None:
    """Older versions did not record it, and without minutes the hours could not be recomputed."""
    old = NOON_MS - 10 * DAY
    store.apply(Applied("minutes", "run", 0), {"traffic_minute": [traffic(old)]}, now=NOON, oldest=old)
    store.tidy(NOON, {RetentionClass.MINUTES: timedelta(days=7)})
    store.replace("positions", [])

    StatsStore(database, is_writing=True).roll_up(old - DAY)

    assert counted(store, "hour") == {old: 1}


def test_polls_are_rolled_up_without_traffic(store: StatsStore) -> None:
    """A group that polls an empty topic for a day has polls but no traffic."""
    at = NOON_MS - DAY
    rows = {"polls_minute": [(at, "orders", "billing", "c1", "empty", 5)], "traffic_minute": [traffic(NOON_MS)]}
    store.apply(Applied("minutes", "run", 0), rows, now=NOON, oldest=at)

    store.roll_up()

    assert store.select("SELECT at, n FROM stats_polls_hour") == [(at, 5)]


def test_a_backfill_replaces_minutes(store: StatsStore) -> None:
    """It is rejected if the live pipeline changed them meanwhile, because those events would be lost."""
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": [traffic(n=2)]}, now=NOON, oldest=NOON_MS)
    since, until = NOON_MS - HOUR, NOON_MS + HOUR

    assert store.replace_minutes(since, until, {"traffic_minute": [traffic(n=7)]}, after=NOON_MS + 1)
    store.apply(
        Applied("minutes", "run", 2),
        {"traffic_minute": [traffic()]},
        now=NOON + timedelta(seconds=9),
        oldest=NOON_MS,
    )
    assert not store.replace_minutes(since, until, {"traffic_minute": [traffic(n=7)]}, after=NOON_MS + 2)

    assert counted(store) == {NOON_MS: 8}


def test_replace_deletes_only_matching_rows(store: StatsStore) -> None:
    """A repeated reconciliation must not leave outdated findings."""

    def finding(topic: str, offset: int) -> tuple[Any, ...]:
        return (NOON_MS, topic, "billing", "", "local:0", offset, "missing", "", "")

    store.replace("findings", [finding("orders", 1), finding("orders", 2)], at=NOON_MS, topic="orders")
    store.replace("findings", [finding("bills", 1)], at=NOON_MS, topic="bills")

    store.replace("findings", [finding("orders", 3)], at=NOON_MS, topic="orders")

    found = store.select('SELECT topic, "offset" FROM stats_findings ORDER BY 1')
    assert found == [("bills", 1), ("orders", 3)]


def test_a_store_of_a_later_schema_version_is_rejected(store: StatsStore, database: Database) -> None:
    """An older mqgate would write rows that the newer one misreads."""
    with database.transaction(is_writing=True) as execute:
        execute("UPDATE stats_layout SET number = ?", (SCHEMA_VERSION + 1,))

    with pytest.raises(StorageRefused, match="newer mqgate"):
        StatsStore(database, is_writing=True)


def test_a_reader_creates_no_store(tmp_path: Path) -> None:
    """A gateway without pipelines returns an error and must not create an empty file."""
    settings = Settings(sqlite=SqliteSettings(directory=str(tmp_path)))

    with pytest.raises(FiguresNotFound, match="mqgate pipeline run"):
        open_stats(settings, is_writing=False)

    assert not (tmp_path / FILE).exists()


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    """The error states the remedy, and the data of the file is kept."""
    (tmp_path / FILE).write_bytes(b"the accounts of 1998" * 100)

    with pytest.raises(StorageRefused, match="move it away"):
        open_stats(Settings(sqlite=SqliteSettings(directory=str(tmp_path))), is_writing=True)

    assert (tmp_path / FILE).read_bytes() == b"the accounts of 1998" * 100


def test_a_full_disk_is_reported_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When space is available again, the batch that did not fit is counted once."""
    path = tmp_path / FILE
    store = StatsStore(SqliteDatabase(path, is_writing=True), is_writing=True)
    store.apply(Applied("minutes", "run", 0), {"traffic_minute": [traffic(n=3)]}, now=NOON)
    large = {"traffic_minute": [traffic(topic=f"t{number:0500}") for number in range(500)]}
    connect = sqlite3.connect

    def cramped(*given: Any, **more: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **more)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(sqlite3, "connect", cramped)
    with pytest.raises(StorageFull, match="free some space; nothing was changed"):
        store.apply(Applied("minutes", "run", 1), large, now=NOON)
    assert counted(store) == {NOON_MS: 3}
    monkeypatch.undo()

    assert store.apply(Applied("minutes", "run", 1), large, now=NOON)
    assert counted(store) == {NOON_MS: 503}
