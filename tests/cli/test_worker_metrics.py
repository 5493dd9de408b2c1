"""One scrape has the metrics of all workers."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqgate.cli.worker_metrics import WorkerMetrics


def own(number: int) -> bytes:
    return f'# HELP m about\n# TYPE m counter\nm{{worker="{number}"}} {number}.0\n'.encode()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[WorkerMetrics, WorkerMetrics]]:
    first, second = (WorkerMetrics(tmp_path, number, lambda number=number: own(number)) for number in (1, 2))
    await first.start()
    await second.start()
    yield first, second
    await first.stop()
    await second.stop()


async def lines(worker: WorkerMetrics) -> set[str]:
    return {line for line in (await worker.render_all()).decode().splitlines() if not line.startswith("#")}


async def test_every_worker_returns_the_metrics_of_all(two: tuple[WorkerMetrics, WorkerMetrics]) -> None:
    """A scrape reaches any of them."""
    first, second = two

    found = await lines(first)

    assert found == {'m{worker="1"} 1.0', 'm{worker="2"} 2.0'} | {
        f'mqgate_worker_up{{worker="{number}"}} 1.0' for number in (1, 2)
    }
    assert await lines(second) == found


async def test_a_worker_that_ended_is_reported_as_down(
    two: tuple[WorkerMetrics, WorkerMetrics], tmp_path: Path
) -> None:
    """Its socket is still in the directory, and nobody listens."""
    first, _ = two
    killed = socket.socket(socket.AF_UNIX)
    killed.bind(str(tmp_path / "3"))
    killed.close()

    found = await lines(first)

    assert 'mqgate_worker_up{worker="3"} 0.0' in found
    assert 'm{worker="2"} 2.0' in found


async def test_a_worker_that_hangs_does_not_hold_up_the_scrape(
    two: tuple[WorkerMetrics, WorkerMetrics], tmp_path: Path
) -> None:
    """It is the reason why somebody looks at the metrics."""
    first, _ = two
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "3"))
        hanging.listen()

        assert 'mqgate_worker_up{worker="3"} 0.0' in await lines(first)


async def test_a_replacement_takes_the_place_of_the_worker(
    two: tuple[WorkerMetrics, WorkerMetrics], tmp_path: Path
) -> None:
    """During a rolling restart both run. Two series of one name and label would make the scrape invalid."""
    first, second = two
    replacement = WorkerMetrics(tmp_path, 2, lambda: own(2).replace(b"2.0", b"0.0"))
    await replacement.start()

    during = await lines(first)
    await second.stop()
    after = await lines(first)
    await replacement.stop()

    assert 'm{worker="2"} 0.0' in during
    assert 'm{worker="2"} 2.0' not in during
    assert after == during
