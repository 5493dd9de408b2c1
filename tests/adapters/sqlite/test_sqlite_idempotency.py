"""Idempotency keys on the embedded engine."""

from collections.abc import Awaitable, Callable

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.idempotency import SqliteIdempotencyStore
from mqgate.core.lease import MEMORY
from mqgate.testing.clock import ManualClock
from mqgate.testing.idempotency_contract import CLAIM, WINDOW, IdempotencyContract


class TestSqliteIdempotency(IdempotencyContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteIdempotencyStore:
        return SqliteIdempotencyStore(engine, WINDOW)

    @pytest.fixture
    def reopen(self, reopen_engine: Callable[[], Awaitable[Engine]]) -> Callable[[], Awaitable[SqliteIdempotencyStore]]:
        async def reopen() -> SqliteIdempotencyStore:
            return SqliteIdempotencyStore(await reopen_engine(), WINDOW)

        return reopen


async def test_tidy_deletes_no_key_within_its_window(engine: Engine, clock: ManualClock) -> None:
    """A repeated publish within the window must not store the message again."""
    store = SqliteIdempotencyStore(engine, WINDOW)
    await store.claim([CLAIM])
    await store.complete([CLAIM], ["the response"])
    clock.advance((WINDOW - MEMORY / 100).total_seconds())

    await store.tidy()
    (within,) = await store.claim([CLAIM])
    clock.advance(WINDOW)
    await store.tidy()

    assert within is not None
    assert await engine.read(lambda view: view.one("SELECT count(*) FROM idempotency")) == (0,)
