"""Messages to Parquet, by topic and hour, exactly once for whoever reads the files.

    <archive>/topic=orders/hour=2026-11-16-12/<run>-<batch>-<number>.parquet     what readers read
    <archive>/_manifest/<run>-<batch>.json     a batch is whole: its files, their rows, the offsets they hold
    <archive>/_manifest/<run>-<batch>.plan     a batch that is being put in its place: the files that will appear
    <archive>/_tmp/...                         what Spark is writing (readers of Parquet skip names with _)

A batch is written aside, its plan is stored, its files are moved to their places, its manifest is stored, its plan is
removed. A crash leaves at most files that a plan names: they are removed before anything else is written. So at any
moment each message is there at most once, and once its batch is whole, exactly once. Spark's own file sink promises
this only to readers that know its log of files.
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
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for them

from mqgate.spark.pipelines.live import run_of

__all__ = ["PIPELINE", "BatchDiffers", "archived", "arranged", "clear", "hours", "keep", "positions", "sweep"]

PIPELINE = "archive"
_HOUR = "%Y-%m-%d-%H"
_COLUMNS = ("id", "queue", "offset", "key", "tag", "properties", "body", "storedAt")


class BatchDiffers(RuntimeError):
    """A batch of that name is in the archive, and is another one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"batch {name} of the archive holds other messages than the one that came under its name: the checkpoint is"
            f" older than the archive. Move it away, and run with --renew {PIPELINE} to begin a new one where that ends"
        )


def arranged(messages: DataFrame) -> DataFrame:
    """The columns of the archive; topic and hour become directories."""
    hour = F.date_format("storedAt", "yyyy-MM-dd-HH").alias("hour")
    return messages.select(*_COLUMNS, "topic", hour)


def archived(archive: Path) -> Callable[[DataFrame, int], None]:
    """What a streaming query calls with each of its micro-batches of messages."""

    def take(messages: DataFrame, number: int) -> None:
        name = f"{run_of(messages)[:8]}-{number:09d}"
        manifest = archive / "_manifest" / f"{name}.json"
        if not manifest.exists():
            keep(messages, archive, name)
        elif not _is_within(messages, _ends([manifest])):
            raise BatchDiffers(name)

    return take


def keep(messages: DataFrame, archive: Path, name: str) -> None:
    """Put a batch into the archive under its name, in the place of what an earlier try left."""
    aside, plan = archive / "_tmp" / name, archive / "_manifest" / f"{name}.plan"
    if plan.exists():
        _remove_planned(archive, plan)
    shutil.rmtree(aside, ignore_errors=True)
    arranged(messages).write.partitionBy("topic", "hour").mode("overwrite").parquet(str(aside))
    moves = dict(_moves(aside, name))
    _store(plan, sorted(moves.values()))
    files = []
    for source, target in moves.items():
        files.append({"path": target, **_about(aside / source)})
        _move(aside / source, archive / target)
    _store(plan.with_suffix(".json"), {"batch": name, "files": files})
    plan.unlink()
    shutil.rmtree(aside, ignore_errors=True)


def positions(archive: Path) -> dict[str, dict[str, int]]:
    """The next offset of each topic and queue that the archive holds; for a start without a checkpoint."""
    found: dict[str, dict[str, int]] = {}
    for (topic, queue), (_, last) in _ends((archive / "_manifest").glob("*.json")).items():
        found.setdefault(topic, {})[queue] = last + 1
    return found


def clear(archive: Path) -> None:
    """Remove what a batch left that broke off: under a new checkpoint it comes again by another name."""
    for plan in (archive / "_manifest").glob("*.plan"):
        if not plan.with_suffix(".json").exists():
            _remove_planned(archive, plan)
        plan.unlink()
    shutil.rmtree(archive / "_tmp", ignore_errors=True)


def sweep(archive: Path, now: datetime, kept: timedelta) -> int:
    """Remove the hours that are older, and manifests of which nothing is left; how many hours."""
    oldest = (now - kept).strftime(_HOUR)
    gone = [path for path in archive.glob("topic=*/hour=*") if path.name.removeprefix("hour=") < oldest]
    for path in gone:
        shutil.rmtree(path)
    if gone:
        ends = positions(archive)
        for manifest in (archive / "_manifest").glob("*.json"):
            files = json.loads(manifest.read_text("utf-8"))["files"]
            # Where the archive ends is told by the newest one of each queue, even if all it held is gone.
            is_end = any(last + 1 == ends[topic][queue] for (topic, queue), (_, last) in _ends([manifest]).items())
            if files and not is_end and not any((archive / file["path"]).exists() for file in files):
                manifest.unlink()
    return len(gone)


def hours(archive: Path, topics: Iterable[str], since: datetime, until: datetime) -> list[str]:
    """The directories of these topics that can hold messages of [since, until)."""
    first = since.astimezone(UTC).strftime(_HOUR)
    last = until.astimezone(UTC).strftime(_HOUR)
    return [
        str(path)
        for topic in topics
        for path in sorted(archive.glob(f"topic={topic}/hour=*"))
        if first <= path.name.removeprefix("hour=") <= last
    ]


def _ends(manifests: Iterable[Path]) -> dict[tuple[str, str], tuple[int, int]]:
    """The first and the last offset of each topic and queue that these tell of."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for manifest in manifests:
        for file in json.loads(manifest.read_text("utf-8"))["files"]:
            topic = Path(file["path"]).parts[0].removeprefix("topic=")
            for queue, (first, last) in file["offsets"].items():
                before = found.get((topic, queue), (first, last))
                found[topic, queue] = min(first, before[0]), max(last, before[1])
    return found


def _is_within(messages: DataFrame, ends: Mapping[tuple[str, str], tuple[int, int]]) -> bool:
    """Whether a batch has nothing else: it may have less when it comes again, if retention was quicker."""
    told = messages.groupBy("topic", "queue").agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
    return all(
        (row.topic, row.queue) in ends
        and ends[row.topic, row.queue][0] <= row.first
        and row.last <= ends[row.topic, row.queue][1]
        for row in told.collect()
    )


def _remove_planned(archive: Path, plan: Path) -> None:
    for leftover in json.loads(plan.read_text("utf-8")):
        (archive / leftover).unlink(missing_ok=True)


def _moves(aside: Path, name: str) -> Iterator[tuple[str, str]]:
    """Where each file that Spark wrote belongs."""
    count: Counter[str] = Counter()
    for path in sorted(aside.glob("topic=*/hour=*/*.parquet")):
        directory = str(path.parent.relative_to(aside))
        yield str(path.relative_to(aside)), f"{directory}/{name}-{count[directory]}.parquet"
        count[directory] += 1


def _about(path: Path) -> dict[str, Any]:
    """How many rows a file has, and the offsets of each queue: the first and the last."""
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
    """All of it or nothing, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    with aside.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
