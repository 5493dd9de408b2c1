"""What the store promises, on SQLite and on PostgreSQL alike."""

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


def test_a_batch_that_comes_again_is_not_counted_again(store: StatsStore) -> None:
    """After a crash Spark repeats its last batch: what is in must stay as it is, so the figures are exact."""
    batch = Applied("minutes", "run", 7)

    assert store.apply(batch, {"traffic_minute": [traffic(n=5)]}, now=NOON)
    assert not store.apply(batch, {"traffic_minute": [traffic(n=5)]}, now=NOON)

    assert counted(store) == {NOON_MS: 5}
    assert store.is_applied(batch)


def test_the_same_number_under_another_checkpoint_is_another_batch(store: StatsStore) -> None:
    """A new checkpoint counts from 0 again; its batches must not pass for those of before."""
    store.apply(Applied("minutes", "old", 0), {"traffic_minute": [traffic()]}, now=NOON)

    assert store.apply(Applied("minutes", "new", 0), {"traffic_minute": [traffic()]}, now=NOON)


def test_a_batch_that_was_overtaken_is_refused(store: StatsStore) -> None:
    """Two drivers that count the same messages at once, by a mistake, count them once."""
    rows = {"traffic_minute": [traffic()], "positions": [("minutes", "events", "local:0", 5)]}

    assert store.apply(Applied("minutes", "a", 0), rows, now=NOON, after=[])
    assert not store.apply(Applied("minutes", "b", 0), rows, now=NOON, after=[])

    assert counted(store) == {NOON_MS: 1}


def test_counts_of_a_minute_add_up(store: StatsStore) -> None:
    """A minute comes in several batches, and late events come hours behind."""
    for number, n in enumerate((3, 4)):
        store.apply(Applied("minutes", "run", number), {"traffic_minute": [traffic(n=n)]}, now=NOON)

    assert store.select('SELECT n, bytes FROM stats_traffic_minute WHERE "group" = ?', ("",)) == [(7, 70)]


def test_a_batch_that_fails_leaves_nothing(store: StatsStore) -> None:
    """Half a batch would be counted twice when it comes again."""
    with pytest.raises(StorageUnavailable):
        store.apply(
            Applied("minutes", "run", 1),
            {"traffic_minute": [traffic()], "latency_minute": [(NOON_MS, None, "g", "ack", 3, 1)]},
            now=NOON,
        )

    assert counted(store) == {}
    assert not store.is_applied(Applied("minutes", "run", 1))


def test_the_newest_sample_of_a_minute_stays(store: StatsStore) -> None:
    """Samples of several gateways come in any order."""

    def sample(at: int, ready: int) -> tuple[Any, ...]:
        return (NOON_MS, "orders", "billing", "", "local:0", at, 0, 9, 4, ready, 0, 0, None)

    store.put({"lag_minute": [sample(NOON_MS + 30, 5)]})
    store.put({"lag_minute": [sample(NOON_MS + 10, 7)]})
    store.put({"lag_minute": [sample(NOON_MS + 50, 3)]})

    assert store.select("SELECT ready FROM stats_lag_minute") == [(3,)]


def test_hours_and_days_are_the_sums_of_their_minutes(store: StatsStore) -> None:
    """Also after late events: the roll-up begins where anything changed, and repeats change nothing."""
    first = [traffic(NOON_MS), traffic(NOON_MS + MINUTE), traffic(NOON_MS + HOUR)]
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": first}, now=NOON, oldest=NOON_MS)
    store.roll_up()
    late = [traffic(NOON_MS - DAY, n=9)]
    store.apply(Applied("minutes", "run", 2), {"traffic_minute": late}, now=NOON, oldest=NOON_MS - DAY)

    store.roll_up()
    store.roll_up(NOON_MS - 2 * DAY)

    assert counted(store, "hour") == {NOON_MS: 2, NOON_MS + HOUR: 1, NOON_MS - DAY: 9}
    assert counted(store, "day") == {NOON_MS - 12 * HOUR: 3, NOON_MS - 36 * HOUR: 9}


def test_nothing_new_is_nothing_to_roll_up(store: StatsStore) -> None:
    """The schedule asks every minute."""
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": [traffic()]}, now=NOON, oldest=NOON_MS)

    assert store.roll_up() == 1
    assert store.roll_up() == 0


def test_hours_outlive_their_minutes(store: StatsStore) -> None:
    """Retention takes minutes by whole days, and a later roll-up leaves the hours of those days alone."""
    old = NOON_MS - 10 * DAY
    for number, at in enumerate((old, NOON_MS)):
        store.apply(Applied("minutes", "run", number), {"traffic_minute": [traffic(at)]}, now=NOON, oldest=at)
    store.roll_up()

    gone = store.tidy(NOON, {RetentionClass.MINUTES: timedelta(days=7), RetentionClass.HOURS: timedelta(days=90)})
    store.roll_up(old)

    assert gone == {"traffic_minute": 1}
    assert counted(store, "hour") == {old: 1, NOON_MS: 1}


def test_what_was_not_rolled_up_is_not_forgotten(store: StatsStore) -> None:
    """Retention may come first, after a rest longer than minutes and batches are kept."""
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": [traffic()]}, now=NOON, oldest=NOON_MS)
    week = timedelta(days=7)

    gone = store.tidy(NOON + timedelta(days=30), {RetentionClass.MINUTES: week, RetentionClass.BATCHES: week})

    assert gone == {"traffic_minute": 1}
    assert counted(store, "hour") == {NOON_MS: 1}


def test_the_newest_batch_of_a_checkpoint_is_never_forgotten(store: StatsStore) -> None:
    """A driver that crashed may come back after any time, and repeats it."""
    for run, number in (("old", 7), ("new", 0), ("new", 1)):
        store.apply(Applied("minutes", run, number), {"traffic_minute": [traffic()]}, now=NOON, oldest=NOON_MS)

    gone = store.tidy(NOON + timedelta(days=4), {RetentionClass.BATCHES: timedelta(days=3)})

    assert gone == {"applied": 1}
    assert store.is_applied(Applied("minutes", "old", 7))
    assert store.is_applied(Applied("minutes", "new", 1))


def a_month(store: StatsStore) -> None:
    """An event a day; only the minutes of the last week are kept."""
    for number in range(30):
        at = NOON_MS - number * DAY
        store.apply(Applied("minutes", "run", number), {"traffic_minute": [traffic(at)]}, now=NOON, oldest=at)
    store.roll_up()
    store.tidy(NOON, {RetentionClass.MINUTES: timedelta(days=7), RetentionClass.HOURS: timedelta(days=25)})


def test_a_backfill_of_an_old_hour_leaves_the_others_alone(store: StatsStore) -> None:
    """The minutes between it and those that are kept are gone: their hours are all that is known."""
    a_month(store)
    hours, days = counted(store, "hour"), counted(store, "day")
    old, older = NOON_MS - 20 * DAY, NOON_MS - 28 * DAY

    for _ in range(2):
        store.refill(old, old + HOUR, {"traffic_minute": [traffic(old, n=5)]}, after=NOON_MS + 1)
        store.roll_up(older)
    assert counted(store, "hour") == hours | {old: 5}
    assert counted(store, "day") == days | {old - 12 * HOUR: 5}

    store.refill(old - 30 * MINUTE, old + 30 * MINUTE, {"traffic_minute": []}, after=NOON_MS + 1)
    store.refill(older, older + HOUR, {"traffic_minute": [traffic(older, n=5)]}, after=NOON_MS + 1)
    assert counted(store, "hour") == hours | {old: 5, older: 5}, "half an hour says nothing of the whole"
    assert counted(store, "day") == days | {old - 12 * HOUR: 5}, "nor does an hour of its day, when the others are gone"


def test_late_events_are_added_to_hours_whose_minutes_are_gone(store: StatsStore) -> None:
    """A pipeline that had rested for days counts them after retention has been there."""
    a_month(store)
    hours, days, at = counted(store, "hour"), counted(store, "day"), NOON_MS - 8 * DAY
    late = [traffic(at + MINUTE, n=2), traffic(at + 2 * MINUTE, n=3)]

    store.apply(Applied("minutes", "run", 30), {"traffic_minute": late}, now=NOON, oldest=at + MINUTE)
    store.roll_up()
    store.tidy(NOON, {RetentionClass.MINUTES: timedelta(days=7)})

    assert counted(store, "hour") == hours | {at: 6}
    assert counted(store, "day") == days | {at - 12 * HOUR: 6}


def test_hours_of_a_store_that_never_noted_its_retention_are_left_alone(store: StatsStore, database: Database) -> None:
    """Those of before did not; after a quiet week there is no minute left by which hours could be made anew."""
    old = NOON_MS - 10 * DAY
    store.apply(Applied("minutes", "run", 0), {"traffic_minute": [traffic(old)]}, now=NOON, oldest=old)
    store.tidy(NOON, {RetentionClass.MINUTES: timedelta(days=7)})
    store.replace("positions", [])

    StatsStore(database, is_writing=True).roll_up(old - DAY)

    assert counted(store, "hour") == {old: 1}


def test_polls_are_rolled_up_where_there_is_no_traffic(store: StatsStore) -> None:
    """Whoever polls in vain for a day has polled."""
    at = NOON_MS - DAY
    rows = {"polls_minute": [(at, "orders", "billing", "c1", "empty", 5)], "traffic_minute": [traffic(NOON_MS)]}
    store.apply(Applied("minutes", "run", 0), rows, now=NOON, oldest=at)

    store.roll_up()

    assert store.select("SELECT at, n FROM stats_polls_hour") == [(at, 5)]


def test_a_backfill_puts_minutes_in_the_place_of_others(store: StatsStore) -> None:
    """And is refused when the live pipeline added to them meanwhile: that would be lost."""
    store.apply(Applied("minutes", "run", 1), {"traffic_minute": [traffic(n=2)]}, now=NOON, oldest=NOON_MS)
    since, until = NOON_MS - HOUR, NOON_MS + HOUR

    assert store.refill(since, until, {"traffic_minute": [traffic(n=7)]}, after=NOON_MS + 1)
    store.apply(
        Applied("minutes", "run", 2),
        {"traffic_minute": [traffic()]},
        now=NOON + timedelta(seconds=9),
        oldest=NOON_MS,
    )
    assert not store.refill(since, until, {"traffic_minute": [traffic(n=7)]}, after=NOON_MS + 2)

    assert counted(store) == {NOON_MS: 8}


def test_rows_are_replaced_where_they_are_asked_to_be(store: StatsStore) -> None:
    """A reconciliation that is done again must not leave findings of before."""

    def finding(topic: str, offset: int) -> tuple[Any, ...]:
        return (NOON_MS, topic, "billing", "", "local:0", offset, "missing", "", "")

    store.replace("findings", [finding("orders", 1), finding("orders", 2)], at=NOON_MS, topic="orders")
    store.replace("findings", [finding("bills", 1)], at=NOON_MS, topic="bills")

    store.replace("findings", [finding("orders", 3)], at=NOON_MS, topic="orders")

    found = store.select('SELECT topic, "offset" FROM stats_findings ORDER BY 1')
    assert found == [("bills", 1), ("orders", 3)]


def test_a_store_of_a_later_layout_is_refused(store: StatsStore, database: Database) -> None:
    """An older mqgate would write what the newer one misreads."""
    with database.transaction(is_writing=True) as execute:
        execute("UPDATE stats_layout SET number = ?", (SCHEMA_VERSION + 1,))

    with pytest.raises(StorageRefused, match="newer mqgate"):
        StatsStore(database, is_writing=True)


def test_who_only_reads_makes_no_store(tmp_path: Path) -> None:
    """A gateway that is asked before any pipeline ran says so, and leaves no empty file behind."""
    settings = Settings(sqlite=SqliteSettings(directory=str(tmp_path)))

    with pytest.raises(FiguresNotFound, match="mqgate pipeline run"):
        open_stats(settings, is_writing=False)

    assert not (tmp_path / FILE).exists()


def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    """The remedy is told; nothing is overwritten."""
    (tmp_path / FILE).write_bytes(b"the accounts of 1998" * 100)

    with pytest.raises(StorageRefused, match="move it away"):
        open_stats(Settings(sqlite=SqliteSettings(directory=str(tmp_path))), is_writing=True)

    assert (tmp_path / FILE).read_bytes() == b"the accounts of 1998" * 100


def test_a_full_disk_is_said_with_its_remedy_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there is room again, the batch that did not fit is counted once."""
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
