"""Archive of messages in Parquet files by topic and hour, with exactly-once semantics for every reader.

    <archive>/topic=orders/hour=2026-11-16-12/<run>-<batch>-<number>.parquet     read by readers
    <archive>/_manifest/<run>-<batch>.json     a complete batch: its files, rows and offsets
    <archive>/_manifest/<run>-<batch>.plan     an incomplete batch: the files to be moved
    <archive>/_tmp/...                         files that Spark writes (readers skip names with _)

A batch is written to _tmp, its plan is stored, its files are moved, its manifest is stored, and its plan is removed.
A crash leaves at most files that a plan names. They are removed before anything else is written. Therefore each message
is in the archive at most once at any time, and exactly once when its batch is complete. The file sink of Spark
guarantees this only to readers that use its log of files.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from mqgate.spark.pipelines.live import run_of

__all__ = [
    "PIPELINE",
    "BatchDiffers",
    "batch_archiver",
    "delete_expired",
    "hour_paths",
    "next_offsets",
    "remove_incomplete",
    "select_columns",
    "write_batch",
]

PIPELINE = "archive"
_HOUR = "%Y-%m-%d-%H"
_COLUMNS = ("id", "queue", "offset", "key", "tag", "properties", "body", "storedAt")


class BatchDiffers(RuntimeError):
    """The archive contains a different batch with the same name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"batch {name} of the archive contains other messages than the new batch of this name: the checkpoint is"
            f" older than the archive. Move the checkpoint away, and run with --renew {PIPELINE} to continue where the"
            " archive ends"
        )


def select_columns(messages: DataFrame) -> DataFrame:
    """Select the columns of the archive. Topic and hour become directories."""
    hour = F.date_format("storedAt", "yyyy-MM-dd-HH").alias("hour")
    return messages.select(*_COLUMNS, "topic", hour)


def batch_archiver(archive: Path) -> Callable[[DataFrame, int], None]:
    """Return the function that a streaming query calls with each micro-batch."""

    def archive_batch(messages: DataFrame, number: int) -> None:
        name = f"{run_of(messages)[:8]}-{number:09d}"
        manifest = archive / "_manifest" / f"{name}.json"
        if not manifest.exists():
            write_batch(messages, archive, name)
        elif not _is_within(messages, _ends([manifest])):
            raise BatchDiffers(name)

    return archive_batch


def write_batch(messages: DataFrame, archive: Path, name: str) -> None:
    """Write a batch to the archive. Files of an earlier incomplete attempt are replaced."""
    temporary, plan = archive / "_tmp" / name, archive / "_manifest" / f"{name}.plan"
    if plan.exists():
        _remove_planned(archive, plan)
    shutil.rmtree(temporary, ignore_errors=True)
    select_columns(messages).write.partitionBy("topic", "hour").mode("overwrite").parquet(str(temporary))
    moves = dict(_moves(temporary, name))
    _store(plan, sorted(moves.values()))
    files = []
    for source, target in moves.items():
        files.append({"path": target, **_file_summary(temporary / source)})
        _move(temporary / source, archive / target)
    _store(plan.with_suffix(".json"), {"batch": name, "files": files})
    plan.unlink()
    shutil.rmtree(temporary, ignore_errors=True)


def next_offsets(archive: Path) -> dict[str, dict[str, int]]:
    """Return the next offset by topic and queue, for a start without a checkpoint."""
    found: dict[str, dict[str, int]] = {}
    for (topic, queue), (_, last) in _ends((archive / "_manifest").glob("*.json")).items():
        found.setdefault(topic, {})[queue] = last + 1
    return found


def remove_incomplete(archive: Path) -> None:
    """Remove files of incomplete batches. A new checkpoint would repeat them under another name."""
    for plan in (archive / "_manifest").glob("*.plan"):
        if not plan.with_suffix(".json").exists():
            _remove_planned(archive, plan)
        plan.unlink()
    shutil.rmtree(archive / "_tmp", ignore_errors=True)


def delete_expired(archive: Path, now: datetime, kept: timedelta) -> int:
    """Delete hours older than `kept`, and manifests without files. Return the number of deleted hours."""
    oldest = (now - kept).strftime(_HOUR)
    expired = [path for path in archive.glob("topic=*/hour=*") if path.name.removeprefix("hour=") < oldest]
    for path in expired:
        shutil.rmtree(path)
    if expired:
        ends = next_offsets(archive)
        for manifest in (archive / "_manifest").glob("*.json"):
            files = json.loads(manifest.read_text("utf-8"))["files"]
            # The newest manifest of each queue is kept without files, because it stores where the archive ends.
            is_end = any(last + 1 == ends[topic][queue] for (topic, queue), (_, last) in _ends([manifest]).items())
            if files and not is_end and not any((archive / file["path"]).exists() for file in files):
                manifest.unlink()
    return len(expired)


def hour_paths(archive: Path, topics: Iterable[str], since: datetime, until: datetime) -> list[str]:
    """Return the directories of these topics that can contain messages of [since, until)."""
    first = since.astimezone(UTC).strftime(_HOUR)
    last = until.astimezone(UTC).strftime(_HOUR)
    return [
        str(path)
        for topic in topics
        for path in sorted(archive.glob(f"topic={topic}/hour=*"))
        if first <= path.name.removeprefix("hour=") <= last
    ]


def _ends(manifests: Iterable[Path]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the first and the last offset by topic and queue in these manifests."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for manifest in manifests:
        for file in json.loads(manifest.read_text("utf-8"))["files"]:
            topic = Path(file["path"]).parts[0].removeprefix("topic=")
            for queue, (first, last) in file["offsets"].items():
                known = found.get((topic, queue), (first, last))
                found[topic, queue] = min(first, known[0]), max(last, known[1])
    return found


def _is_within(messages: DataFrame, ends: Mapping[tuple[str, str], tuple[int, int]]) -> bool:
    """Return whether a batch has no other offsets. A repeated batch may have fewer, because of retention."""
    bounds = messages.groupBy("topic", "queue").agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
    return all(
        (row.topic, row.queue) in ends
        and ends[row.topic, row.queue][0] <= row.first
        and row.last <= ends[row.topic, row.queue][1]
        for row in bounds.collect()
    )


def _remove_planned(archive: Path, plan: Path) -> None:
    for path in json.loads(plan.read_text("utf-8")):
        (archive / path).unlink(missing_ok=True)


def _moves(temporary: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield the source and the target path of each file that Spark wrote."""
    count: Counter[str] = Counter()
    for path in sorted(temporary.glob("topic=*/hour=*/*.parquet")):
        directory = str(path.parent.relative_to(temporary))
        yield str(path.relative_to(temporary)), f"{directory}/{name}-{count[directory]}.parquet"
        count[directory] += 1


def _file_summary(path: Path) -> dict[str, Any]:
    """Return the number of rows of a file, and the first and last offset of each queue."""
    rows = pq.ParquetFile(path).read(["queue", "offset"])
    ends = rows.group_by("queue").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    offsets = {end["queue"]: [end["offset_min"], end["offset_max"]] for end in ends}
    return {"rows": rows.num_rows, "offsets": offsets}


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)


def _store(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
