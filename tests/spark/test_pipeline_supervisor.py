"""The supervisor: what fails is started again, what is due is done, and all of it is told."""

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
    """A query of Spark's, as far as it is looked at."""

    def __init__(self, error: str | None = None) -> None:
        self.isActive = error is None
        self.error = error
        sources = [{"endOffset": '{"t": {"q": 3}}', "latestOffset": '{"t": {"q": 10}}'}]
        self.lastProgress = {"batchId": 4, "numInputRows": 9, "processedRowsPerSecond": 3.0, "sources": sources}

    def exception(self) -> str | None:
        return self.error


@pytest.fixture
def store(tmp_path: Path) -> StatsStore:
    return StatsStore(SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True), is_writing=True)


def supervisor(store: StatsStore, queries: Any = (), jobs: Any = ()) -> tuple[Supervisor, list[str]]:
    said: list[str] = []
    return Supervisor(store, queries, jobs, said.append), said


def states(store: StatsStore) -> dict[str, Any]:
    return {row["pipeline"]: row for row in reports.pipelines(store)}


def test_a_query_that_fails_is_started_again_after_a_pause(store: StatsStore) -> None:
    """And again after a longer one, so that a gateway that is down is not stormed."""
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


def test_how_a_query_is_stands_in_the_store(store: StatsStore) -> None:
    """Gateways show it, wherever the pipelines run."""
    supervised, _ = supervisor(store, [LiveQuery("minutes", Query)])  # type: ignore[arg-type]

    supervised.step(NOW)
    supervised.step(NOW + timedelta(seconds=6))

    told = states(store)["minutes"]
    assert (told["state"], told["batch"], told["rows"], told["behind"], told["error"]) == ("running", 4, 9, 7, None)


def test_a_full_disk_is_told_with_its_remedy_and_tried_again(store: StatsStore) -> None:
    """Nothing was written, so nothing is lost; it goes on when there is room."""
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


def test_what_no_restart_mends_ends_the_command(store: StatsStore, tmp_path: Path) -> None:
    """Somebody has to decide about a checkpoint that is gone: to go on by itself would count everything twice."""

    def start() -> Any:
        raise CheckpointLost("minutes", tmp_path)

    with pytest.raises(CheckpointLost, match="--renew minutes"):
        supervisor(store, [LiveQuery("minutes", start)])[0].step(NOW)


def test_jobs_are_done_when_they_are_due(store: StatsStore) -> None:
    """One that fails is told, does not disturb the others, and has its next turn."""
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


def test_errors_that_we_know_have_a_remedy() -> None:
    """Spark's own words go on for pages and name none."""
    assert "free some space" in remedy("java.io.IOException: No space left on device")
    assert remedy("something else") == ""
