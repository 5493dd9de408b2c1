"""The loop that moves what is due from the timers into the log.

    claim (recorded) -> append -> finish (recorded)

A process that dies after the claim leaves it unfinished; at the next start those are looked up by id in the log
first, so that none is dispatched twice. The loop sleeps until the next due row, or until somebody schedules an
earlier one.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby

import structlog

from mqgate.core.errors import MqgateError, TopicNotFound
from mqgate.ports.message_log import MessageLog
from mqgate.ports.timer_store import Timer, TimerStore
from mqgate.telemetry.metrics import Metrics

_log = structlog.get_logger()
_BATCH = 500
_LONGEST_SLEEP = 60.0
_PAUSE_AFTER_FAILURE = 0.5


class Mover:
    def __init__(self, timers: TimerStore, log: MessageLog, metrics: Metrics, clock: Callable[[], datetime]) -> None:
        self._timers = timers
        self._log = log
        self._metrics = metrics
        self._clock = clock
        self._next: datetime | None = None
        self._earlier = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._task or asyncio.create_task(self._loop())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def planned(self, due: datetime) -> None:
        """Somebody scheduled something: sleep no longer than until then."""
        if self._next is None or due < self._next:
            self._earlier.set()

    async def recover(self) -> int:
        """Finish what a process that is gone had begun; how many it had not sent."""
        left = await self._timers.unfinished()
        there: list[Timer] = []
        missing: list[Timer] = []
        for timer in left:
            (there if await self._is_there(timer) else missing).append(timer)
        if there:
            await self._timers.finish(there)
        await self._dispatch(missing)
        return len(missing)

    async def _is_there(self, timer: Timer) -> bool:
        try:
            return await self._log.find(timer.topic, timer.draft.id) is not None
        except TopicNotFound:
            return False

    async def run_once(self) -> int:
        """Move everything that is due now; how many."""
        moved = 0
        while True:
            # While we ask, every new timer may be the next one.
            self._next = None
            due, self._next = await self._timers.claim(_BATCH)
            if not due:
                return moved
            await self._dispatch(due)
            moved += len(due)

    async def _dispatch(self, due: Sequence[Timer]) -> None:
        for topic, timers in groupby(sorted(due, key=lambda each: each.topic), key=lambda each: each.topic):
            some = list(timers)
            try:
                await self._log.append(topic, [each.draft for each in some])
            except TopicNotFound:
                await self._timers.cancel_all(topic)
                _log.warning("scheduled messages cancelled with their topic", topic=topic, count=len(some))
                continue
            except MqgateError:
                await self._timers.release(some)
                raise
            await self._timers.finish(some)
            now = self._clock()
            self._metrics.dispatched.inc(len(some))
            for each in some:
                self._metrics.lateness.observe(max((now - each.due).total_seconds(), 0))

    async def _loop(self) -> None:
        has_failed = False
        while True:
            self._earlier.clear()
            try:
                if has_failed:
                    # What was claimed may be neither sent nor released, if the store failed there too.
                    await self.recover()
                    has_failed = False
                await self.run_once()
            except MqgateError as error:
                _log.warning("dispatch failed", error=error.detail)
                has_failed = True
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                continue
            wait = _LONGEST_SLEEP
            if self._next is not None:
                wait = min(max((self._next - self._clock()).total_seconds(), 0), wait)
            # Not wait_for: until Python 3.12 it forgets that we were stopped if a timer was set at the same moment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._earlier.wait()
