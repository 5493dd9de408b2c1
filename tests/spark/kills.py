"""Killing a driver of Spark in mid-batch: driver, JVM and workers."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

__all__ = ["committed", "kill_in_all", "open_batches"]

PATIENCE = 300.0
LONGEST_BATCH = 1.0


def kill_in_all(
    job: subprocess.Popen[bytes],
    under_way: Mapping[str, Callable[[], AbstractSet[object]]],
    before: Mapping[str, AbstractSet[object]],
) -> None:
    """Kill all of it, and wait for it, when each part has something under way that was not there before.

    It is stopped for the last look, so that nothing is done in the last moment. It may end by itself before;
    AssertionError if it comes to neither.
    """
    deadline = time.monotonic() + PATIENCE

    def is_in(name: str) -> bool:
        return bool(under_way[name]() - before[name])

    try:
        while job.poll() is None:
            assert time.monotonic() < deadline, f"no batch began of {[n for n in under_way if not is_in(n)]}"
            if all(map(is_in, under_way)):
                # Otherwise the last query would always be killed at the beginning of its batch.
                time.sleep(random.uniform(0, LONGEST_BATCH))
                _signal_all(job.pid, signal.SIGSTOP)
                if all(map(is_in, under_way)):
                    return
                _signal_all(job.pid, signal.SIGCONT)
            time.sleep(0.02)
    finally:
        # Also after a failure: no process may continue.
        if job.returncode is None:
            _signal_all(job.pid, signal.SIGKILL)
            job.wait()


def open_batches(checkpoint: Path) -> set[int]:
    """Batches that were planned and not committed. Spark forgets old ones, of both kinds."""
    planned = _numbers(checkpoint / "offsets")
    done = max(committed(checkpoint), default=-1)
    return {number for number in planned if number > done}


def committed(checkpoint: Path) -> set[int]:
    """Batches that are done."""
    return _numbers(checkpoint / "commits")


def _numbers(directory: Path) -> set[int]:
    return {int(path.name) for path in directory.glob("*") if path.name.isdigit()}


def _signal_all(root: int, sign: signal.Signals) -> None:
    """The driver, its JVM and its workers; those first who could start others."""
    for pid in [root, *_descendants(root)]:
        # A child may end by itself when its parent is gone.
        with suppress(ProcessLookupError):
            os.kill(pid, sign)


def _descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        # The name between the parentheses may hold anything.
        pid, parent = int(text.partition(" ")[0]), int(text.rpartition(")")[2].split()[1])
        parents.setdefault(parent, []).append(pid)
    found, waiting = [], [root]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found
