"""The loop that moves what is due from the timers into the log.

    claim (recorded) -> append -> finish (recorded)

A process that dies after the claim leaves it unfinished; at the next start those are looked up by id in the log
first, so that none is dispatched twice. The loop sleeps until the next due row, or until somebody schedules an
earlier one.

Some messages of a batch may fail where others are stored: their queue is down. They stay claimed while the run goes on
for a while, else the next batch would be the same ones again and nothing behind them would ever move; then they are
released, and tried again after a pause. If nobody knows whether one was stored, it is sent again, with the same id.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

import structlog

from mqgate.background import Background
from mqgate.core.errors import MqgateError, TopicNotFound
from mqgate.events.recorder import EventRecorder
from mqgate.ports.message_log import MessageLog
from mqgate.ports.timer_store import Timer, TimerStore
from mqgate.telemetry.metrics import Metrics

_log = structlog.get_logger()
_BATCH = 500
_LOOK_UPS = 64
_LONGEST_SLEEP = 60.0
_PAUSE_AFTER_FAILURE = 0.5
_BATCHES_PAST_FAILURE = 20


class _Failed(NamedTuple):
    timer: Timer
    error: MqgateError


class TimerDispatcher:
    def __init__(
        self,
        timers: TimerStore,
        log: MessageLog,
        metrics: Metrics,
        recorder: EventRecorder,
        clock: Callable[[], datetime],
    ) -> None:
        self._timers = timers
        self._log = log
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._next: datetime | None = None
        self._earlier = asyncio.Event()
        self._background = Background(self._loop)
        # Something may be claimed and neither sent nor released.
        self._must_recover = False

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    def planned(self, due: datetime) -> None:
        """Somebody scheduled something: sleep no longer than until then."""
        if self._next is None or due < self._next:
            self._earlier.set()

    def recover_later(self) -> None:
        """Let the loop recover, again and again until it can."""
        self._must_recover = True

    def recover_soon(self) -> None:
        """Another gateway is gone and left something unfinished: recover without waiting for a timer."""
        self._must_recover = True
        self._earlier.set()

    async def recover(self) -> int:
        """Finish what a process that is gone had begun; how many it had not sent."""
        left = await self._timers.unfinished()
        there: list[Timer] = []
        missing: list[Timer] = []
        for some in (left[start : start + _LOOK_UPS] for start in range(0, len(left), _LOOK_UPS)):
            # Side by side: with a broker behind the log every look-up is a journey, and overdue messages wait.
            for timer, is_there in zip(some, await asyncio.gather(*map(self._is_there, some)), strict=True):
                (there if is_there else missing).append(timer)
        if there:
            await self._timers.finish(there)
        await self._settle(await self._dispatch(missing))
        return len(missing)

    async def _is_there(self, timer: Timer) -> bool:
        try:
            return await self._log.find(timer.topic, timer.draft.id) is not None
        except TopicNotFound:
            return False

    async def run_once(self) -> int:
        """Move everything that is due now; how many. Raises why some could not be moved, after the others were."""
        moved = batches = 0
        failed: list[_Failed] = []
        while batches < _BATCHES_PAST_FAILURE:
            # While we ask, every new timer may be the next one.
            self._next = None
            due, self._next = await self._timers.claim(_BATCH)
            if not due:
                break
            failed += await self._dispatch(due)
            moved += len(due)
            batches += bool(failed)
        await self._settle(failed)
        return moved

    async def _settle(self, failed: Sequence[_Failed]) -> None:
        """Let go of what could not be moved, and say why."""
        if failed:
            await self._timers.release([each.timer for each in failed])
            raise failed[0].error

    async def _dispatch(self, due: Sequence[Timer]) -> list[_Failed]:
        failed: list[_Failed] = []
        for topic, timers in groupby(sorted(due, key=lambda each: each.topic), key=lambda each: each.topic):
            some = list(timers)
            drafts = [each.draft for each in some]
            try:
                outcomes = await self._log.append(topic, drafts)
            except TopicNotFound:
                await self._timers.cancel_all(topic)
                _log.warning("scheduled messages cancelled with their topic", topic=topic, count=len(some))
                continue
            except MqgateError as error:
                failed += [_Failed(timer, error) for timer in some]
                continue
            self._recorder.published(topic, "", drafts, outcomes)
            told = list(zip(some, outcomes, strict=True))
            failed += [_Failed(timer, each) for timer, each in told if isinstance(each, MqgateError)]
            await self._finish([timer for timer, each in told if not isinstance(each, MqgateError)])
        return failed

    async def _finish(self, moved: Sequence[Timer]) -> None:
        if not moved:
            return
        await self._timers.finish(moved)
        now = self._clock()
        self._metrics.dispatched.inc(len(moved))
        for each in moved:
            self._metrics.lateness.observe(max((now - each.due).total_seconds(), 0))

    async def _loop(self) -> None:
        while True:
            self._earlier.clear()
            try:
                if self._must_recover:
                    # What was claimed may be neither sent nor released, if the store failed there too.
                    await self.recover()
                    self._must_recover = False
                await self.run_once()
            except MqgateError as error:
                _log.warning("dispatch failed", error=error.detail)
                self._must_recover = True
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                continue
            wait = _LONGEST_SLEEP
            if self._next is not None:
                wait = min(max((self._next - self._clock()).total_seconds(), 0), wait)
            # Not wait_for: until Python 3.12 it forgets that we were stopped if a timer was set at the same moment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._earlier.wait()
