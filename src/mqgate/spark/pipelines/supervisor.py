"""Runs the live queries and the scheduled jobs, and stores their state.

A failed query is restarted from its checkpoint after a pause, which grows while it keeps failing. Errors that a restart
cannot fix (a lost checkpoint, a store of a later schema version) end the driver.
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
_STORE_INTERVAL = timedelta(seconds=5)
_MAX_ERROR_LENGTH = 500
_REMEDIES = {
    "No space left on device": "the disk is full: free some space; the pipeline then continues",
    "disk of": "free some space; the pipeline then continues",
    "Connection refused": "start the gateway; the pipeline then continues",
    "does not respond": "start the gateway; the pipeline then continues",
    "topic_not_found": "a gateway creates the topic with its first event; the pipeline then continues",
    "of the archive contains other messages": "the checkpoint is outdated: move it away, and run with --renew archive",
    "_STREAM_INVALID_CHECKPOINT": "the checkpoint is damaged: move it away, and run with --renew",
}


@dataclass(slots=True)
class LiveQuery:
    """A streaming query and its state."""

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
    """A scheduled job. `run` returns a short summary, or an empty text. `error` is the failure of its last run."""

    name: str
    every: timedelta
    run: Callable[[], str]
    due: datetime = field(default_factory=lambda: datetime.now(UTC))
    error: str | None = None


class Supervisor:
    def __init__(
        self, store: StatsStore, queries: Sequence[LiveQuery], jobs: Sequence[Job], say: Callable[[str], None]
    ) -> None:
        self._store = store
        self._queries = queries
        self._jobs = jobs
        self._say = say
        self._stored_at = datetime.fromtimestamp(0, UTC)

    def run(self, stopping: threading.Event) -> None:
        """Run until `stopping` is set. The next start repeats the current batch of each query."""
        try:
            self.announce(datetime.now(UTC))
            while not stopping.is_set():
                self.step(datetime.now(UTC))
                stopping.wait(1.0)
        finally:
            self.end(datetime.now(UTC))

    def run_once(self) -> None:
        """Let the live queries process the available messages, run each job once, and store that all have ended."""
        self.announce(datetime.now(UTC))
        try:
            for live in self._queries:
                self._drain(live)
            now = datetime.now(UTC)
            for job in self._jobs:
                self._run_job(job, now)
        finally:
            self.end(datetime.now(UTC))

    def announce(self, now: datetime) -> None:
        """Store a row for every job, so that one that is not due for an hour is visible too."""
        self._put([_job_row(job, now, "running") for job in self._jobs])

    def end(self, now: datetime) -> None:
        """Stop the live queries, and store that queries and jobs have ended."""
        for live in self._queries:
            if live.query is not None and live.query.isActive:
                live.query.stop()
        self._store_state(now, is_ending=True)
        self._put([_job_row(job, now, "stopped") for job in self._jobs])

    @staticmethod
    def _drain(live: LiveQuery) -> None:
        try:
            live.query = live.start()
            live.query.processAllAvailable()
        except Exception as error:
            live.error = f"{_short(str(error))}{remedy(str(error))}"
            raise

    def step(self, now: datetime) -> None:
        for live in self._queries:
            self._restart_if_needed(live, now)
        if now - self._stored_at >= _STORE_INTERVAL:
            self._store_state(now)
        for job in self._jobs:
            if job.due <= now:
                job.due = now + job.every
                self._run_job(job, now)

    def _restart_if_needed(self, live: LiveQuery, now: datetime) -> None:
        if live.query is not None and live.query.isActive:
            self._reset_after_progress(live)
            return
        if live.query is not None:
            self._record_failure(live, str(live.query.exception() or "the query ended without an error"), now)
        if live.not_before is not None and now < live.not_before:
            return
        try:
            live.query = live.start()
            live.not_before = None
        except (MqgateError, PySparkException, OSError) as error:
            self._record_failure(live, str(error), now)

    def _reset_after_progress(self, live: LiveQuery) -> None:
        assert live.query is not None  # noqa: S101 - for the type checker
        progress = live.query.lastProgress
        if progress is not None and progress["batchId"] != live.batch:
            live.batch = progress["batchId"]
            live.pause, live.error = _MIN_PAUSE, None

    def _record_failure(self, live: LiveQuery, error: str, now: datetime) -> None:
        live.query = None
        live.error = f"{_short(error)}{remedy(error)}"
        live.restarts += 1
        live.not_before = now + live.pause
        self._say(f"{live.name} failed, next try in {live.pause.total_seconds():g} s: {live.error}")
        live.pause = min(live.pause * 2, _MAX_PAUSE)

    def _run_job(self, job: Job, now: datetime) -> None:
        try:
            summary, error = job.run(), None
        except Exception as fault:  # noqa: BLE001 - a failed job is reported, and runs again when it is due
            summary, error = "", f"{_short(str(fault))}{remedy(str(fault))}"
        if summary or error:
            self._say(f"{job.name}: {summary}" if error is None else f"{job.name} failed: {error}")
        job.error = error
        self._put([_job_row(job, now, "running")])

    def _store_state(self, now: datetime, *, is_ending: bool = False) -> None:
        self._stored_at = now
        self._put([_row(live, now, is_ending=is_ending) for live in self._queries])

    def _put(self, rows: Sequence[Any]) -> None:
        try:
            self._store.put({"pipelines": rows})
        except MqgateError as error:
            # The queries use the same store and report the same error.
            self._say(f"the state of the pipelines could not be stored: {error}")


def remedy(error: str) -> str:
    """Return the remedy of a known error in parentheses, or an empty text."""
    return next((f" ({text})" for known, text in _REMEDIES.items() if known in error), "")


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


def _job_row(job: Job, now: datetime, state: str) -> tuple[Any, ...]:
    state = "failed" if job.error else state
    return (job.name, milliseconds(now), state, None, None, None, None, 0, job.error)


def _short(error: str) -> str:
    """Return the beginning of an error text. Texts of Spark are several pages long."""
    line = next((line for line in error.splitlines() if line.strip()), "")
    return line if len(line) <= _MAX_ERROR_LENGTH else f"{line[:_MAX_ERROR_LENGTH]}..."
