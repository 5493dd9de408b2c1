"""The timer store of the embedded engine."""

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


async def test_decided_timers_are_deleted_after_a_while_and_pending_ones_never(
    engine: Engine, clock: ManualClock
) -> None:
    """A repeated cancel must be recognised for at least 10 minutes."""
    store = SqliteTimerStore(engine)
    await store.add([Timer("orders", Draft(message_id, b"x"), NOON) for message_id in ("done", "dropped", "claimed")])
    await store.add([Timer("orders", Draft("waiting", b"x"), NOON + timedelta(days=1))])
    await store.change("dropped", None)
    due, _ = await store.claim(10)
    await store.finish([timer for timer in due if timer.draft.id == "done"])

    clock.advance(timedelta(minutes=10))
    await store.tidy()
    remembered = [await store.change(message_id, None) for message_id in ("done", "dropped")]
    clock.advance(timedelta(minutes=20))
    await store.tidy()

    assert remembered == [TimerState.DELIVERED, TimerState.CANCELLED]
    assert await store.get("done") is None
    assert await store.get("dropped") is None
    assert await store.get("waiting") is not None
    assert [timer.draft.id for timer in await store.unfinished()] == ["claimed"]
