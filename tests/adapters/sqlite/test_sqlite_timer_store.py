"""Timers on the embedded engine."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.timer_store import SqliteTimerStore
from mqgate.core.message import Draft
from mqgate.ports.timer_store import Timer, TimerState
from mqgate.testing.clock import NOON, ManualClock
from mqgate.testing.timer_store_contract import TimerStoreContract


class TestSqliteTimerStore(TimerStoreContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteTimerStore:
        return SqliteTimerStore(engine)

    @pytest.fixture
    def reopen(self, reopen_engine: Callable[[], Awaitable[Engine]]) -> Callable[[], Awaitable[SqliteTimerStore]]:
        async def reopen() -> SqliteTimerStore:
            return SqliteTimerStore(await reopen_engine())

        return reopen


async def test_tidy_deletes_old_finished_timers_and_no_pending_ones(engine: Engine, clock: ManualClock) -> None:
    """A repeated cancel must get the same result for at least 10 minutes."""
    store = SqliteTimerStore(engine)
    await store.add([Timer("orders", Draft(each, b"x"), NOON) for each in ("done", "dropped", "claimed")])
    await store.add([Timer("orders", Draft("waiting", b"x"), NOON + timedelta(days=1))])
    await store.change("dropped", None)
    due, _ = await store.claim(10)
    await store.finish([each for each in due if each.draft.id == "done"])

    clock.advance(timedelta(minutes=10))
    await store.tidy()
    remembered = [await store.change(each, None) for each in ("done", "dropped")]
    clock.advance(timedelta(minutes=20))
    await store.tidy()

    assert remembered == [TimerState.DELIVERED, TimerState.CANCELLED]
    assert await store.get("done") is None
    assert await store.get("dropped") is None
    assert await store.get("waiting") is not None
    assert [each.draft.id for each in await store.unfinished()] == ["claimed"]
