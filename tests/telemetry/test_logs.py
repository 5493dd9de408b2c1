"""The log of `mqgate serve` contains the records of libraries, in the same format."""

import json
import subprocess
import sys
from typing import Any

import pytest

HIDDEN = "hunter2"
PROGRAM = """
import asyncio, gc, logging, warnings
import structlog, uvloop
from psycopg_pool import AsyncConnectionPool
from mqgate.telemetry import logs

logs.configure("info", "json")
structlog.contextvars.bind_contextvars(worker=3)
structlog.get_logger().info("our own line", url="redis://ada:hunter2@h")
logging.getLogger("psycopg.pool").warning("error in %r: %s", "mqgate", "postgresql://ada:hunter2@h/db is away")
logging.getLogger("redis").info("of no interest")
logging.getLogger("redis.connection").error("two\\nlines, user=ada password=hunter2")
warnings.warn("old", DeprecationWarning, stacklevel=1)
try:
    raise ValueError("redis://ada:hunter2@h")
except ValueError:
    logging.getLogger("any.library").exception("it failed")

async def fail():
    raise RuntimeError("not retrieved")

async def main():
    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()
    failed = asyncio.Event()
    pool = AsyncConnectionPool(
        "postgresql://ada:hunter2@127.0.0.1:1/db", open=False, min_size=1, reconnect_timeout=0.1, name="own",
        reconnect_failed=lambda pool: failed.set(),
    )
    await pool.open()
    await asyncio.wait_for(failed.wait(), 60)
    await pool.close()

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    """Return all lines that the program wrote. A line that is not JSON fails here."""
    command = [sys.executable, "-W", "always", "-c", PROGRAM]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)  # noqa: S603 - our own interpreter
    assert ended.stderr == ""
    assert HIDDEN not in ended.stdout
    return [json.loads(line) for line in ended.stdout.splitlines()]


def line_of(lines: list[dict[str, Any]], logger: str) -> dict[str, Any]:
    return next(line for line in lines if line.get("logger") == logger)


def test_a_warning_of_a_library_has_the_format_of_our_lines(lines: list[dict[str, Any]]) -> None:
    """A log collector that reads JSON drops other lines."""
    ours, theirs = lines[0], line_of(lines, "psycopg.pool")

    assert ours["event"] == "our own line"
    assert theirs["event"] == "error in 'mqgate': postgresql://ada:***@h/db is away"
    assert theirs.keys() - {"logger"} == ours.keys() - {"url"}
    assert (theirs["level"], theirs["worker"]) == ("warning", 3)


def test_every_line_has_an_event_and_a_logger(lines: list[dict[str, Any]]) -> None:
    """Operators search by event, and need to know which library wrote a line."""
    assert all(line["event"] and line["level"] and line["timestamp"] for line in lines)
    assert all(line["logger"] for line in lines[1:])


def test_records_of_libraries_below_warning_are_omitted(lines: list[dict[str, Any]]) -> None:
    """Some libraries log every command."""
    assert not [line for line in lines if line["event"] == "of no interest"]


def test_an_exception_is_a_member_of_its_line_without_passwords(lines: list[dict[str, Any]]) -> None:
    """A traceback on further lines would not be JSON."""
    failed = line_of(lines, "any.library")

    assert failed["event"] == "it failed"
    assert failed["exception"].endswith("ValueError: redis://ada:***@h")


def test_a_python_warning_is_a_json_line(lines: list[dict[str, Any]]) -> None:
    """Python writes warnings to stderr as plain text by default."""
    assert "DeprecationWarning: old" in line_of(lines, "py.warnings")["event"]


def test_an_unretrieved_task_exception_is_a_json_line(lines: list[dict[str, Any]]) -> None:
    """A bug in a background task is visible nowhere else."""
    lost = line_of(lines, "asyncio")

    assert lost["event"].startswith("Task exception was never retrieved")
    assert lost["exception"].endswith("RuntimeError: not retrieved")


def test_a_pool_that_cannot_connect_logs_no_password(lines: list[dict[str, Any]]) -> None:
    """Psycopg writes these records itself while PostgreSQL is unavailable."""
    events = [line["event"] for line in lines if line.get("logger") == "psycopg.pool"]

    assert any("'own'" in event for event in events)


def test_only_the_server_configures_logging() -> None:
    """Applications that import the client, or run Spark, configure their own logging."""
    program = "import logging, mqgate.client, mqgate.spark; print(logging.getLogger().handlers)"
    command = [sys.executable, "-c", program]

    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)  # noqa: S603 - our own interpreter

    assert ended.stdout.strip() == "[]"
