"""A real PostgreSQL and Redis (Valkey) for the whole test run, each started when the first test needs it.

All pytest-xdist workers share a server: the first one starts it, the last one stops it, and a guard stops it if all are
killed. If it cannot run, the tests are skipped; with CI=true they fail.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest

from cluster import RUN
from mqgate.stack import Stack, StackUnavailable
from mqgate.stack.guard import _exists, guard
from mqgate.stack.lock import locked


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if names & {"postgres", "mortal"}:
            item.add_marker("postgres")
        if names & {"redis", "mortal_redis"}:
            item.add_marker("redis")


@contextmanager
def running(stack: Stack, controller: int, part: Literal["postgres", "redis"] = "postgres") -> Iterator[Stack]:
    """Yield the server of that directory while it is in use."""
    home = stack.directory
    lock, users = home.with_suffix(".lock"), home.with_suffix(".users")
    me = users / str(os.getpid())
    with locked(lock):
        if not home.exists():
            guard(stack, controller)
            try:
                stack.up(brokers=(), parts=(part,))
            except StackUnavailable as error:
                shutil.rmtree(home)
                if os.environ.get("CI") == "true":
                    pytest.fail(f"{part} cannot run here: {error}", pytrace=False)
                pytest.skip(f"{part} cannot run here: {error}")
        users.mkdir(exist_ok=True)
        me.touch()
    try:
        yield stack
    finally:
        with locked(lock):
            me.unlink()
            if not any(_exists(int(path.name)) for path in users.iterdir()):
                stack.down()
                shutil.rmtree(home)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The shared server. Do not stop it."""
    run = request.config.stash[RUN]
    with running(Stack(run.directory / "postgres"), run.controller) as stack:
        yield stack


@pytest.fixture(scope="module")
def mortal(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A server for one test module, which may stop or break it."""
    run = request.config.stash[RUN]
    with running(Stack(run.directory / f"postgres-{os.getpid()}"), run.controller) as stack:
        yield stack


@pytest.fixture(scope="session")
def redis(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The shared server. Use names of your own, and do not stop or flush it."""
    run = request.config.stash[RUN]
    with running(Stack(run.directory / "redis"), run.controller, "redis") as stack:
        yield stack


@pytest.fixture(scope="module")
def mortal_redis(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A server for one test module, which may stop or flush it."""
    run = request.config.stash[RUN]
    with running(Stack(run.directory / f"redis-{os.getpid()}"), run.controller, "redis") as stack:
        yield stack
