"""Keeps the live queries running and the scheduled jobs in turn, and tells how they are.

A query that fails is started again from its checkpoint, after a pause that grows while it keeps failing. What no
restart mends (a lost checkpoint, a store of a later layout) ends the whole: somebody has to look.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from mqgate.core.errors import MqgateError
from mqgate.core.message import milliseconds
from mqgate.spark.progress import behind
from mqgate.stats.store import StatsStore

__all__ = ["Job", "LiveQuery", "Supervisor", "remedy"]

_MIN_PAUSE, _MAX_PAUSE = timedelta(seconds=1), timedelta(minutes=1)
_TELL_EVERY = timedelta(seconds=5)
_MAX_ERROR_LENGTH = 500
_REMEDIES = {
    "No space left on device": "the disk is full: free some space, and it goes on by itself",
    "disk of": "free some space, and it goes on by itself",
    "Connection refused": "is the gateway up? it goes on by itself when it is",
    "does not answer": "is the gateway up? it goes on by itself when it is",
    "topic_not_found": "gateways make the topic when they first have something to tell; it goes on by itself",
    "of the archive holds other messages": "the checkpoint is an old one: move it away, and run with --renew archive",
    "_STREAM_INVALID_CHECKPOINT": "the checkpoint is damaged: move it away, and run with --renew",
}


@dataclass(slots=True)
class LiveQuery:
    """A streaming query: how it is started, and how it is."""

    name: str
    start: Callable[[], StreamingQuery]
    query: StreamingQuery | None = None
    restarts: int = 0
    pause: timedelta = _MIN_PAUSE
    not_before: datetime | None = None
    error: str | None = None
    batch: int = -1


@dataclass(slots=True)
class Job:
    """Something to be done now and then; `run` says in a few words what it did."""

    name: str
    every: timedelta
    run: Callable[[], str]
    due: datetime = field(default_factory=lambda: datetime.now(UTC))


class Supervisor:
    def __init__(
        self, store: StatsStore, queries: Sequence[LiveQuery], jobs: Sequence[Job], say: Callable[[str], None]
    ) -> None:
        self._store = store
        self._queries = queries
        self._jobs = jobs
        self._say = say
        self._told = datetime.fromtimestamp(0, UTC)

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop; the queries end with their current batch undone, which is repeated at the next start."""
        try:
            while not stopping.is_set():
                self.step(datetime.now(UTC))
                stopping.wait(1.0)
        finally:
            for live in self._queries:
                if live.query is not None and live.query.isActive:
                    live.query.stop()
            self._tell(datetime.now(UTC), is_ending=True)

    def step(self, now: datetime) -> None:
        for live in self._queries:
            self._look_after(live, now)
        if now - self._told >= _TELL_EVERY:
            self._tell(now)
        for job in self._jobs:
            if job.due <= now:
                job.due = now + job.every
                self._do(job, now)

    def _look_after(self, live: LiveQuery, now: datetime) -> None:
        if live.query is not None and live.query.isActive:
            self._watch(live)
            return
        if live.query is not None:
            self._failed(live, str(live.query.exception() or "it ended by itself"), now)
        if live.not_before is not None and now < live.not_before:
            return
        try:
            live.query = live.start()
            live.not_before = None
        except (MqgateError, PySparkException, OSError) as error:
            self._failed(live, str(error), now)

    def _watch(self, live: LiveQuery) -> None:
        assert live.query is not None  # noqa: S101 - for the type checker
        progress = live.query.lastProgress
        if progress is not None and progress["batchId"] != live.batch:
            live.batch = progress["batchId"]
            live.pause, live.error = _MIN_PAUSE, None

    def _failed(self, live: LiveQuery, error: str, now: datetime) -> None:
        live.query = None
        live.error = f"{_short(error)}{remedy(error)}"
        live.restarts += 1
        live.not_before = now + live.pause
        self._say(f"{live.name} failed, next try in {live.pause.total_seconds():g} s: {live.error}")
        live.pause = min(live.pause * 2, _MAX_PAUSE)

    def _do(self, job: Job, now: datetime) -> None:
        try:
            told, error = job.run(), None
        except Exception as fault:  # noqa: BLE001 - a job that fails is told, and tried again when it is due
            told, error = "", f"{_short(str(fault))}{remedy(str(fault))}"
        if told or error:
            self._say(f"{job.name}: {told}" if error is None else f"{job.name} failed: {error}")
        state = "failed" if error else "running"
        self._put([(job.name, milliseconds(now), state, None, None, None, None, 0, error)])

    def _tell(self, now: datetime, *, is_ending: bool = False) -> None:
        self._told = now
        self._put([_row(live, now, is_ending=is_ending) for live in self._queries])

    def _put(self, rows: Sequence[Any]) -> None:
        try:
            self._store.put({"pipelines": rows})
        except MqgateError as error:
            # The queries need the store too, and tell the same.
            self._say(f"how the pipelines are cannot be told: {error}")


def remedy(error: str) -> str:
    """What to do about an error that we know."""
    return next((f" ({told})" for known, told in _REMEDIES.items() if known in error), "")


def _row(live: LiveQuery, now: datetime, *, is_ending: bool) -> tuple[Any, ...]:
    progress: Mapping[str, Any] | None = live.query.lastProgress if live.query is not None else None
    state = "failed" if live.error else "stopped" if is_ending else "running"
    if progress is None:
        return (live.name, milliseconds(now), state, None, None, None, None, live.restarts, live.error)
    pace = progress["processedRowsPerSecond"]
    return (
        live.name,
        milliseconds(now),
        state,
        progress["batchId"],
        progress["numInputRows"],
        pace if math.isfinite(pace) else None,
        behind(progress),
        live.restarts,
        live.error,
    )


def _short(error: str) -> str:
    """The first words of an error; Spark's go on for pages."""
    line = next((line for line in error.splitlines() if line.strip()), "")
    return line if len(line) <= _MAX_ERROR_LENGTH else f"{line[:_MAX_ERROR_LENGTH]}..."
