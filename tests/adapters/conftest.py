"""The embedded engine on a temporary directory, with a hand-moved clock."""

import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import mqgate.testing

# One by one: the clock beside them is imported already.
pytest.register_assert_rewrite(
    *(
        f"mqgate.testing.{module.name}"
        for module in pkgutil.iter_modules(mqgate.testing.__path__)
        if module.name == "leasing" or module.name.endswith("_contract")
    )
)

from mqgate.adapters.sqlite.engine import Engine  # noqa: E402 - after the rewriting is asked for
from mqgate.testing.clock import ManualClock  # noqa: E402 - same

OpenEngine = Callable[..., Engine]


@pytest.fixture
async def open_engine(tmp_path: Path, clock: ManualClock) -> AsyncIterator[OpenEngine]:
    """Opens the test's one data directory, as often as the engine before was closed."""
    opened: list[Engine] = []

    def open_engine(**options: object) -> Engine:
        opened.append(Engine(tmp_path / "data", **{"synchronous": "normal", "wall_ms": clock, **options}))
        return opened[-1]

    yield open_engine
    for engine in opened:
        await engine.close()


@pytest.fixture
def engine(open_engine: OpenEngine) -> Engine:
    return open_engine()


ReopenEngine = Callable[[], Awaitable[Engine]]


@pytest.fixture
def reopen_engine(engine: Engine, open_engine: OpenEngine) -> ReopenEngine:
    """Closes the engine and opens its directory again, as a restart does."""

    async def reopen_engine() -> Engine:
        await engine.close()
        return open_engine()

    return reopen_engine
