"""The supervisor restarts failed queries, runs due jobs, and stores their state."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mqgate.core.errors import StorageFull
from mqgate.spark.pipelines.queries import CheckpointLost
from mqgate.spark.pipelines.supervisor import Job, LiveQuery, Supervisor, remedy
from mqgate.stats import reports
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import StatsStore

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Query:
    """Stub of a streaming query with the members that the supervisor uses."""

    def __init__(self, error: str | None = None) -> None:
        self.isActive = error is None
        self.error = error
        sources = [{"endOffset": '{"t": {"q": 3}}', "latestOffset": '{"t": {"q": 10}}'}]
        self.lastProgress = {"batchId": 4, "numInputRows": 9, "processedRowsPerSecond": 3.0, "sources": sources}

    def exception(self) -> str | None:
        return self.error

    def processAllAvailable(self) -> None:  # noqa: N802 - the name of Spark
        if self.error:
            raise ValueError(self.error)

    def stop(self) -> None:
        self.isActive = False


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True), is_writing=True)


def supervisor(store: StatsStore, queries: Any = (), jobs: Any = ()) -> tuple[Supervisor, list[str]]:
    said: list[str] = []
    return Supervisor(store, queries, jobs, said.append), said


def states(store: StatsStore) -> dict[str, Any]:
    return {row["pipeline"]: row for row in reports.pipelines(store)}


def test_a_failed_query_is_restarted_after_a_growing_pause(store: StatsStore) -> None:
    """A gateway that is down must not be overloaded by retries."""
    started: list[datetime] = []
    now = NOW
    live = LiveQuery("minutes", lambda: started.append(now) or Query("Connection refused: http://127.0.0.1:8080"))  # type: ignore[func-returns-value]
    supervised, said = supervisor(store, [live])

    for second in range(20):
        now = NOW + timedelta(seconds=second)
        supervised.step(now)

    assert [(at - NOW).seconds for at in started] == [0, 2, 5, 10, 19]
    assert "start the gateway" in said[0]
    assert states(store)["minutes"]["restarts"] == 4


def test_the_state_of_a_query_is_stored(store: StatsStore) -> None:
    """Gateways show it, on whichever machine the pipelines run."""
    supervised, _ = supervisor(store, [LiveQuery("minutes", Query)])  # type: ignore[arg-type]

    supervised.step(NOW)
    supervised.step(NOW + timedelta(seconds=6))

    state = states(store)["minutes"]
    assert (state["state"], state["batch"], state["rows"], state["behind"], state["error"]) == (
        "running",
        4,
        9,
        7,
        None,
    )


def test_a_full_disk_is_reported_and_retried(store: StatsStore) -> None:
    """Nothing was written, so the query continues without loss when space is available."""
    faults = [StorageFull("the disk of /data is full: free some space; nothing was changed")]

    def start() -> Any:
        if faults:
            raise faults.pop()
        return Query()

    supervised, said = supervisor(store, [LiveQuery("minutes", start)])

    supervised.step(NOW)
    assert states(store)["minutes"]["state"] == "failed"
    supervised.step(NOW + timedelta(seconds=6))
    supervised.step(NOW + timedelta(seconds=12))

    assert "free some space" in said[0]
    assert states(store)["minutes"]["state"] == "running"


def test_a_lost_checkpoint_ends_the_command(store: StatsStore, tmp_path: Path) -> None:
    """An operator must decide, because an automatic restart would count everything twice."""

    def start() -> Any:
        raise CheckpointLost("minutes", tmp_path)

    with pytest.raises(CheckpointLost, match="--renew minutes"):
        supervisor(store, [LiveQuery("minutes", start)])[0].step(NOW)


def test_jobs_run_when_they_are_due(store: StatsStore) -> None:
    """A failed job is reported, does not stop other jobs, and runs again later."""
    done: list[str] = []

    def fail() -> str:
        done.append("bad")
        raise ValueError("no such thing")

    jobs = [
        Job("bad", timedelta(minutes=1), fail, due=NOW),
        Job("good", timedelta(minutes=2), lambda: done.append("good") or "did it", due=NOW),  # type: ignore[func-returns-value]
    ]
    supervised, said = supervisor(store, (), jobs)

    for second in range(0, 150, 30):
        supervised.step(NOW + timedelta(seconds=second))

    assert done == ["bad", "good", "bad", "bad", "good"]
    assert said[:2] == ["bad failed: no such thing", "good: did it"]
    assert (states(store)["bad"]["state"], states(store)["good"]["state"]) == ("failed", "running")


def test_after_one_run_no_pipeline_is_shown_as_running(store: StatsStore) -> None:
    """An alarm on `mqgate_pipeline_running` must not stay silent because the last run ended normally."""
    jobs = [Job("good", timedelta(minutes=2), lambda: ""), Job("bad", timedelta(minutes=2), lambda: str(1 // 0))]
    supervised, _ = supervisor(store, [LiveQuery("minutes", Query)], jobs)  # type: ignore[arg-type]

    supervised.run_once()

    shown = {name: row["state"] for name, row in states(store).items()}
    assert shown == {"minutes": "stopped", "good": "stopped", "bad": "failed"}


def test_a_failed_single_run_is_shown_as_failed(store: StatsStore) -> None:
    """The command fails too, and every pipeline still has a row."""
    jobs = [Job("good", timedelta(minutes=2), lambda: "")]
    supervised, _ = supervisor(store, [LiveQuery("minutes", lambda: Query("no such broker"))], jobs)  # type: ignore[arg-type,return-value]

    with pytest.raises(ValueError, match="no such broker"):
        supervised.run_once()

    assert {name: row["state"] for name, row in states(store).items()} == {"minutes": "failed", "good": "stopped"}


def test_a_job_has_a_row_before_it_is_due(store: StatsStore) -> None:
    """The reconciliation runs hourly; a dashboard must list it from the start."""
    jobs = [Job("reconcile", timedelta(hours=1), lambda: "", due=NOW + timedelta(hours=1))]
    supervised, _ = supervisor(store, (), jobs)

    supervised.announce(NOW)
    supervised.step(NOW)

    assert states(store)["reconcile"]["state"] == "running"


def test_known_errors_have_a_remedy() -> None:
    """Error texts of Spark are pages long and state no remedy."""
    assert "free some space" in remedy("java.io.IOException: No space left on device")
    assert remedy("something else") == ""
