"""Fixtures for stacks of single tests, and for the command as a process."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqgate.stack import Stack

CommandResult = subprocess.CompletedProcess[str]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Create a directory that PostgreSQL can enter if root starts it as another user."""
    path = Path(tempfile.mkdtemp(prefix="mqgate-stack-"))
    path.chmod(0o755)
    yield path
    Stack(path).down()
    shutil.rmtree(path)


@pytest.fixture
def run(directory: Path) -> Callable[..., CommandResult]:
    """Return a function that runs `mqgate stack` in the directory. A variable of None is unset."""

    def run(*arguments: str, **environment: str | None) -> CommandResult:
        environ = {**os.environ, **environment}
        return subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "-m", "mqgate.cli.main", "stack", *arguments, "--directory", str(directory)],
            env={name: value for name, value in environ.items() if value is not None},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    return run
