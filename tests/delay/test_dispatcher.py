"""The dispatcher of due messages, on the embedded engine."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.timer_store import SqliteTimerStore
from mqgate.core.message import Draft
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.events.recorder import EventRecorder
from mqgate.ports.timer_store import Timer, TimerState
from mqgate.telemetry.metrics import Metrics
from mqgate.testing.clock import ManualClock

HOUR = timedelta(hours=1)


class Delayed:
    """A log with the topic `orders`, the timers, and their dispatcher."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.clock = clock
        self.log = SqliteMessageLog(engine)
        self.timers = SqliteTimerStore(engine)
        metrics = Metrics()
        recorder = EventRecorder(metrics, clock, max_rows=100)
        self.dispatcher = TimerDispatcher(self.timers, self.log, metrics, recorder, lambda: clock.now)

    async def schedule(self, *ids: str, topic: str = "orders") -> None:
        await self.timers.add([Timer(topic, Draft(name, b"later"), self.clock.now + HOUR) for name in ids])

    async def stored(self, message_id: str) -> bool:
        return await self.log.find("orders", message_id) is not None


@pytest.fixture
async def delayed(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Delayed]:
    engine = Engine(tmp_path, wall_ms=clock)
    delayed = Delayed(engine, clock)
    await delayed.log.load()
    await delayed.log.create("orders", 1)
    yield delayed
    await engine.close()


async def test_a_message_is_appended_when_it_is_due_and_not_before(delayed: Delayed) -> None:
    """A delay is a promise in both directions."""
    await delayed.schedule("a")

    early = await delayed.dispatcher.run_once()
    is_stored_early = await delayed.stored("a")
    delayed.clock.advance(HOUR)
    due = await delayed.dispatcher.run_once()

    assert (early, is_stored_early) == (0, False)
    assert (due, await delayed.stored("a")) == (1, True)


async def test_a_dispatched_message_is_not_dispatched_again(delayed: Delayed) -> None:
    """The timer is finished after the append, so the next run finds nothing."""
    await delayed.schedule("a")
    delayed.clock.advance(HOUR)

    runs = [await delayed.dispatcher.run_once() for _ in range(2)]

    timer = await delayed.timers.get("a")
    assert runs == [1, 0]
    assert timer is not None
    assert timer.state is TimerState.DELIVERED


async def test_recovery_finishes_what_was_appended_and_repeats_what_was_not(delayed: Delayed) -> None:
    """A process that stopped between claim and finish leaves each message stored exactly once."""
    await delayed.schedule("a", "b")
    delayed.clock.advance(HOUR)
    await delayed.timers.claim(10)
    await delayed.log.append("orders", [Draft("a", b"later")])

    missing = await delayed.dispatcher.recover()
    await delayed.dispatcher.run_once()

    bounds = await delayed.log.bounds("orders")
    assert missing == 1
    assert [queue.max for queue in bounds.queues.values()] == [2]
    assert await delayed.stored("b")


async def test_the_timers_of_a_deleted_topic_are_cancelled(delayed: Delayed) -> None:
    """They must not block the due messages of other topics."""
    await delayed.schedule("a", topic="gone")
    await delayed.schedule("b")
    delayed.clock.advance(HOUR)

    await delayed.dispatcher.run_once()

    timer = await delayed.timers.get("a")
    assert timer is not None
    assert timer.state is not TimerState.DELIVERED
    assert await delayed.stored("b")
