"""The archive contains each message once, whatever failed during the write."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

from mqgate.spark.pipelines import archive
from mqgate.spark.pipelines.config import own_session

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
COLUMNS = (
    "id STRING, topic STRING, queue STRING, offset BIGINT, key STRING, tag STRING, properties MAP<STRING,STRING>,"
    " body BINARY, storedAt TIMESTAMP"
)


def messages(spark: SparkSession, numbers: range, topic: str = "orders") -> DataFrame:
    rows = [
        (f"id-{n}", topic, f"local:{n % 2}", n // 2, None, None, {"n": str(n)}, b"x", NOON + timedelta(minutes=20 * n))
        for n in numbers
    ]
    return spark.createDataFrame(rows, COLUMNS)


def plain(path: Path) -> Counter[str]:
    """Return the rows that a plain Parquet reader finds: all files except names that start with _ or a dot."""
    rows = ds.dataset(path, format="parquet", partitioning="hive").to_table().to_pylist()
    return Counter(row["id"] for row in rows)


def test_a_batch_is_stored_by_topic_and_hour(spark: SparkSession, tmp_path: Path) -> None:
    """Plain readers find it, and the manifest lists its files."""
    archive.write_batch(messages(spark, range(6)), tmp_path, "run-0")

    assert plain(tmp_path) == Counter(f"id-{n}" for n in range(6))
    assert sorted(path.name for path in tmp_path.glob("topic=orders/*")) == ["hour=2026-11-16-12", "hour=2026-11-16-13"]
    manifest = json.loads((tmp_path / "_manifest" / "run-0.json").read_text())
    assert sum(file["rows"] for file in manifest["files"]) == 6
    assert archive.next_offsets(tmp_path) == {"orders": {"local:0": 3, "local:1": 3}}


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_an_interrupted_batch_is_stored_once_after_its_repeat(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """This holds for an interruption at any step, even if Spark splits the same rows into other files."""
    batch, true_move, left = messages(spark, range(6)), archive._move, [moved]

    def break_off(source: Path, target: Path) -> None:
        if not left[0]:
            raise OSError("No space left on device")
        left[0] -= 1
        true_move(source, target)

    monkeypatch.setattr(archive, "_move", break_off)
    with pytest.raises(OSError, match="No space"):
        archive.write_batch(batch.repartition(3, "id"), tmp_path, "run-0")
    assert max([0, *plain(tmp_path).values()]) <= 1, "never twice, not even now"
    monkeypatch.undo()

    archive.write_batch(batch.coalesce(1), tmp_path, "run-0")

    assert plain(tmp_path) == Counter(f"id-{n}" for n in range(6))
    assert not list(tmp_path.glob("_manifest/*.plan"))


def test_a_repeated_complete_batch_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """Spark repeats a batch without a commit and may write fewer files, which would leave old files as duplicates."""
    batch, take = messages(spark, range(6)), archive.batch_archiver(tmp_path)
    take(batch.repartition(3, "id"), 7)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}

    take(batch.coalesce(1), 7)

    assert len(before) > 2, "or there is nothing to be left over"
    take(messages(spark, range(2, 5)), 7)  # retention was quicker
    with pytest.raises(archive.BatchDiffers, match="--renew archive"):
        take(messages(spark, range(5, 7)), 7)  # a checkpoint was put back from a backup

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before
    assert plain(tmp_path) == Counter(f"id-{n}" for n in range(6))


def test_expired_hours_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """Their manifests are deleted too, except manifests that list retained hours."""
    archive.write_batch(messages(spark, range(3)), tmp_path, "run-0")
    archive.write_batch(messages(spark, range(3, 6)), tmp_path, "run-1")

    swept = archive.delete_expired(tmp_path, NOON + timedelta(days=1, hours=1), timedelta(days=1))

    assert swept == 1
    assert plain(tmp_path) == Counter(f"id-{n}" for n in range(3, 6))
    assert [path.name for path in tmp_path.glob("_manifest/*")] == ["run-1.json"]

    ends = archive.next_offsets(tmp_path)
    assert archive.delete_expired(tmp_path, NOON + timedelta(days=9), timedelta(days=1)) == 1
    assert not list(tmp_path.rglob("*.parquet"))
    assert archive.next_offsets(tmp_path) == ends, "where it goes on is known when nothing is left"


def test_hours_are_utc_in_every_time_zone() -> None:
    """The spark-defaults.conf of a machine may set another time zone."""
    chosen: dict[str, Any] = {}
    own = SimpleNamespace(
        dataSource=SimpleNamespace(register=lambda _: None), conf=SimpleNamespace(set=chosen.__setitem__)
    )

    own_session(cast("SparkSession", SimpleNamespace(newSession=lambda: own)))

    assert chosen["spark.sql.session.timeZone"] == "UTC"


def test_files_of_an_incomplete_batch_are_removed(tmp_path: Path) -> None:
    """A new checkpoint repeats the batch under another name, so its old files would be duplicates."""
    hour, manifests = tmp_path / "topic=orders" / "hour=2026-11-16-12", tmp_path / "_manifest"
    for directory in (hour, manifests, tmp_path / "_tmp" / "run-1"):
        directory.mkdir(parents=True)
    for name in ("run-0", "run-1"):
        (hour / f"{name}-0.parquet").touch()
        planned = [f"{hour.relative_to(tmp_path)}/{name}-{number}.parquet" for number in range(2)]
        (manifests / f"{name}.plan").write_text(json.dumps(planned))
    (manifests / "run-0.json").write_text('{"files": []}')

    archive.remove_incomplete(tmp_path)

    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"run-0.json", "run-0-0.parquet"}
    assert not (tmp_path / "_tmp").exists()


def test_hours_are_found_by_topic_and_time(tmp_path: Path) -> None:
    """A backfill or a replay must read only the directories that it needs."""
    for topic, hour in (("a", 11), ("a", 12), ("a", 13), ("b", 12)):
        (tmp_path / f"topic={topic}" / f"hour=2026-11-16-{hour}").mkdir(parents=True)

    found = archive.hour_paths(tmp_path, ["a"], NOON + timedelta(minutes=30), NOON + timedelta(hours=1))

    assert [Path(path).name for path in found] == ["hour=2026-11-16-12", "hour=2026-11-16-13"]
