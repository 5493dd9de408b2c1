"""Fixtures: one Spark session and one gateway for all tests of this directory, and a new topic for each test."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mqgate.client import Client
from mqgate.java import JavaNotFound, find_java
from mqgate.testing.server_process import ServerProcess

_NOT_RUN = "Spark cannot run here: "


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"spark", "java"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    reasons = [reason.partition(_NOT_RUN)[2] for reason in skipped if _NOT_RUN in reason]
    if reasons:
        terminalreporter.write_line(f"{len(reasons)} TESTS NOT RUN without Spark: {reasons[0]}", red=True, bold=True)


@pytest.fixture(scope="session")
def java() -> Path:
    """Return the Java home for tests that start their own Spark."""
    try:
        return find_java(17, "Spark")
    except JavaNotFound as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{_NOT_RUN}{error}", pytrace=False)
        pytest.skip(f"{_NOT_RUN}{error}")


@pytest.fixture(scope="session")
def spark(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a session with two local cores. Spark does not retry tasks, so a failed task fails its job."""
    from mqgate.spark.session import session  # noqa: PLC0415 - with it comes pyspark

    conf = {
        "spark.sql.shuffle.partitions": 1,
        # A frame of a few rows costs more to compile, or to plan again after each of its stages, than to process.
        # Drivers of their own do both, as users' do.
        "spark.sql.adaptive.enabled": False,
        "spark.sql.codegen.wholeStage": False,
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": tmp_path_factory.mktemp("spark") / "warehouse",
    }
    built = session("mqgate-tests", "local[2]", **conf)
    yield built
    built.stop()


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Start a gateway without API keys on the embedded engine."""
    # Retention is looked at often, so that tests need not wait for it; but with all their topics it takes a while.
    server = ServerProcess(tmp_path_factory.mktemp("gateway"), MQGATE_SQLITE_TIDY_INTERVAL="1").start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def gateway_url(gateway: ServerProcess) -> str:
    return gateway.url


@pytest.fixture
def client(gateway: ServerProcess) -> Iterator[Client]:
    with Client(gateway.url) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    """Create a topic with four queues."""
    name = f"topic-{uuid4().hex}"
    client.topics.put(name, {"queues": 4})
    return name
