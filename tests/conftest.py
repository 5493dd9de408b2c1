"""Fixtures that most tests use: a gateway in this process with a manual clock, or one of its own behind a socket."""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

import class_archive
from mqgate import bootstrap
from mqgate.settings import Settings, SqliteSettings
from mqgate.testing.clock import ManualClock
from mqgate.testing.server_process import ServerProcess
from plain_log import log_plainly

# The fixtures `rocketmq` and `pair`; `postgres`, `mortal`, `redis` and `mortal_redis`.
pytest_plugins = ["cluster", "servers", "mqgate.testing.fixtures"]
# Not installed; but httpx asks for it with every request, and to look for it in all rooms takes as long as the request.
sys.modules.setdefault("sniffio", None)
SPARK = Path(__file__).with_name("spark")


def pytest_configure(config: pytest.Config) -> None:
    """Configure child processes for a fast start, because they run for seconds or minutes: see `lean`."""
    brokers, spark = map(class_archive.reading, (class_archive.BROKER, class_archive.SPARK))
    os.environ.setdefault("JDK_JAVA_OPTIONS", f"{class_archive.LEAN_JAVA} {brokers}")
    # Drivers, and the servers of a cluster: what a command line says wins.
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ.setdefault(name, spark)
    log_plainly()
    # Not for pytest's own workers, which may use all that there is.
    if os.environ.get("PYTEST_XDIST_WORKER") or not config.getoption("numprocesses", None):
        paths = (str(Path(__file__).with_name("lean")), os.environ.get("PYTHONPATH", ""))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Use the event loop of the gateways."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one more worker than cores, because many tests wait for a lease or a broker."""
    return int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS", len(os.sched_getaffinity(0)) + 1))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests so that at the end no worker waits for another; keep modules together, which share servers.

    Each worker gets an equal share of the list, in order. A worker that is finished takes tests from the end of the
    share of another one. Spark tests are first in the first share, because one session serves all of them. Other slow
    tests are first in the other shares.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    lengths = {path: max(map(_length, found)) for path, found in modules.items()}
    by_length = sorted(modules, key=lambda path: -lengths[path])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    bounds: list[list[pytest.Item]] = [[] for _ in range(workers)]
    others = [path for path in by_length if path.parent != SPARK]
    bounds[0] += [item for path in by_length if path.parent == SPARK for item in modules[path]]
    for turn, path in enumerate(path for path in others if lengths[path]):
        bounds[-1 - turn % max(workers - 1, 1)] += modules[path]
    rest = [item for path in others if not lengths[path] for item in modules[path]]
    share = len(items) // workers
    items.clear()
    for head in bounds:
        fill = max(share - len(head), 0)
        items += [*head, *rest[:fill]]
        del rest[:fill]
    items += rest


def pytest_collection_finish() -> None:
    """Exclude the collected tests, which live until the end, from garbage collection."""
    gc.collect()
    gc.freeze()


def _length(item: pytest.Item) -> float:
    """Return the expected duration: the time limit of a test, or a few seconds if it is marked slow."""
    limit = item.get_closest_marker("timeout")
    return float(limit.args[0]) if limit else 1.0 if item.get_closest_marker("slow") else 0.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(sqlite=SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=timedelta(hours=1)))


@pytest.fixture
async def gateway(settings: Settings, clock: ManualClock) -> AsyncIterator[bootstrap.Gateway]:
    async with bootstrap.gateway(settings, wall_ms=clock) as built:
        yield built


@pytest.fixture
async def api(gateway: bootstrap.Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client without a socket."""
    transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture(scope="session")
def gateway_url(mqgate_gateway: ServerProcess) -> str:
    """An open gateway with nothing registered, for tests that need a socket."""
    return mqgate_gateway.url


async def put(api: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    """Register an entry, or fail with the response of the gateway."""
    response = await api.put(f"/v1/{path}", json=body)
    assert response.status_code in {200, 201}, response.text
    return dict(response.json())
