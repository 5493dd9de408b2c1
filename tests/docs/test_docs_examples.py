"""Every program in examples/ runs twice against a new gateway."""

import json
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from doc_pages import ROOT, run

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize(
    ("script", "outcomes"),
    [
        ("message-mode.sh", ["applied", "applied", "applied", "duplicate"]),
        ("queue-mode.sh", ["applied"]),
        ("broadcast-mode.sh", ["applied", "applied"]),
    ],
)
def test_a_shell_example_settles_what_it_receives(script: str, outcomes: list[str], gateway_url: str) -> None:
    """Users copy them: each step must do what its comment says, also in a second run."""
    for _ in range(2):
        printed = run("sh", str(EXAMPLES / script), gateway_url)

        responses = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        assert [response["outcome"] for response in responses if "outcome" in response] == outcomes


def test_a_producer_that_runs_twice_stores_once_and_a_worker_finishes_all(gateway_url: str) -> None:
    """Together the two programs are a first application: nothing is lost, nothing is stored twice."""
    suffix = uuid4().hex
    topic, group = f"topic-{suffix}", f"group-{suffix}"
    produce = [sys.executable, "-S", str(EXAMPLES / "producer.py"), "--url", gateway_url, "--topic", topic]
    work = [sys.executable, str(EXAMPLES / "worker.py"), "--url", gateway_url, "--topic", topic, "--group", group]

    first = run(*produce, "--run", suffix, "--count", "25").splitlines()
    second = run(*produce, "--run", suffix, "--count", "25").splitlines()
    worked = run(*work, "--until-empty").splitlines()

    assert all(line.startswith("201") for line in first)
    assert all(line.startswith("200") and line.endswith("duplicate") for line in second)
    bodies = sorted(json.loads(line.partition(" ")[2])["order"] for line in worked)
    assert bodies == list(range(25))
    assert not run(*work, "--until-empty")


@pytest.mark.spark
@pytest.mark.slow
def test_the_spark_example_reads_aggregates_and_writes_back(gateway_url: str, tmp_path: Path) -> None:
    """A second run continues at its checkpoint: totals include all orders, and only changes are written."""
    suffix = uuid4().hex
    arguments = ["--url", gateway_url, "--orders", f"orders-{suffix}", "--totals", f"totals-{suffix}"]
    # The second time in the same process: Spark stops and starts in it as well, and most of a run is to start a JVM.
    twice = "import runpy, sys; it = sys.argv.pop(1); [(runpy.run_path(it), print('ran')) for _ in range(2)]"
    program = [sys.executable, "-c", twice, str(EXAMPLES / "spark_orders.py")]

    printed = run(*program, *arguments, "--checkpoint", str(tmp_path))

    turns = printed.split("ran\n")[:-1]
    for turn, output in enumerate(turns, start=1):
        totals = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        assert {"customer": "ada", "orders": 10 * turn, "total": 55 * turn} in totals
        assert len(totals) == 3 * turn
    assert len(turns) == 2


def test_every_example_is_listed_and_tried() -> None:
    """A program that is never run soon stops working."""
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".sh", ".py"}}
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    tried = Path(__file__).read_text("utf-8")

    assert programs == {name for name in programs if f"]({name})" in listed}
    assert programs == {name for name in programs if name in tried}
