"""Stacks of a test's own, and the command in a process of its own."""

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
    """Not pytest's: PostgreSQL, started as another user by root, must be able to enter it."""
    path = Path(tempfile.mkdtemp(prefix="mqgate-stack-"))
    path.chmod(0o755)
    yield path
    Stack(path).down()
    shutil.rmtree(path)


@pytest.fixture
def run(directory: Path) -> Callable[..., CommandResult]:
    """`run("up", "--redis")` in the directory, as from a shell; a variable given as None is not there."""

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
