"""A file lock between processes. The system releases it when its process ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock and hold it. It is not re-entrant: a nested call in the same process waits forever."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
