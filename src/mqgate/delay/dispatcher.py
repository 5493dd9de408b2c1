"""The loop that appends due messages to the log.

    claim (recorded) -> append -> finish (recorded)

A process that stops after the claim leaves it unfinished. The next start looks such messages up in the log by id, so
that none is appended twice. The loop sleeps until the next due time, or until an earlier timer is added.

Messages of a batch may fail while others are stored, for example if their queue is down. They stay claimed while the
run continues for at most 20 batches; otherwise the next batch would consist of the same messages. Then they are
released and tried again after a pause. If it is unknown whether a message was stored, it is sent again with its id.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
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
_MAX_SLEEP = 60.0
_PAUSE_AFTER_FAILURE = 0.5
_MAX_BATCHES_AFTER_FAILURE = 20


_topic_of = attrgetter("topic")


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
        self._wake = asyncio.Event()
        self._background = Background(self._loop)
        # Timers may be claimed and neither sent nor released.
        self._must_recover = False

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    def wake_by(self, due: datetime) -> None:
        """Wake the loop at `due` at the latest."""
        if self._next is None or due < self._next:
            self._wake.set()

    def recover_later(self) -> None:
        """Let the loop recover, and repeat it until it succeeds."""
        self._must_recover = True

    def recover_soon(self) -> None:
        """Recover at once, because another gateway stopped and may have left claimed timers."""
        self._must_recover = True
        self._wake.set()

    async def recover(self) -> int:
        """Finish the claimed timers of a stopped process; return how many it had not sent."""
        unfinished = await self._timers.unfinished()
        stored: list[Timer] = []
        missing: list[Timer] = []
        for batch in (unfinished[start : start + _LOOK_UPS] for start in range(0, len(unfinished), _LOOK_UPS)):
            # Concurrently: a look-up on a broker takes a round trip, and overdue messages wait.
            for timer, is_stored in zip(batch, await asyncio.gather(*map(self._is_stored, batch)), strict=True):
                (stored if is_stored else missing).append(timer)
        if stored:
            await self._timers.finish(stored)
        await self._release_failed(await self._dispatch(missing))
        return len(missing)

    async def _is_stored(self, timer: Timer) -> bool:
        try:
            return await self._log.find(timer.topic, timer.draft.id) is not None
        except TopicNotFound:
            return False

    async def run_once(self) -> int:
        """Append all due messages and return their number. Raise the first error after the others were appended."""
        dispatched = batches = 0
        failed: list[_Failed] = []
        while batches < _MAX_BATCHES_AFTER_FAILURE:
            # During the claim, every new timer may be the next one.
            self._next = None
            due, self._next = await self._timers.claim(_BATCH)
            if not due:
                break
            failed += await self._dispatch(due)
            dispatched += len(due)
            batches += bool(failed)
        await self._release_failed(failed)
        return dispatched

    async def _release_failed(self, failed: Sequence[_Failed]) -> None:
        """Release the timers that failed, and raise the first error."""
        if failed:
            await self._timers.release([failure.timer for failure in failed])
            raise failed[0].error

    async def _dispatch(self, due: Sequence[Timer]) -> list[_Failed]:
        failed: list[_Failed] = []
        for topic, of_topic in groupby(sorted(due, key=_topic_of), key=_topic_of):
            timers = list(of_topic)
            drafts = [timer.draft for timer in timers]
            try:
                outcomes = await self._log.append(topic, drafts)
            except TopicNotFound:
                await self._timers.cancel_all(topic)
                _log.warning("scheduled messages cancelled with their topic", topic=topic, count=len(timers))
                continue
            except MqgateError as error:
                failed += [_Failed(timer, error) for timer in timers]
                continue
            self._recorder.published(topic, "", drafts, outcomes)
            results = list(zip(timers, outcomes, strict=True))
            failed += [_Failed(timer, outcome) for timer, outcome in results if isinstance(outcome, MqgateError)]
            await self._finish([timer for timer, outcome in results if not isinstance(outcome, MqgateError)])
        return failed

    async def _finish(self, dispatched: Sequence[Timer]) -> None:
        if not dispatched:
            return
        await self._timers.finish(dispatched)
        now = self._clock()
        self._metrics.dispatched.inc(len(dispatched))
        for timer in dispatched:
            self._metrics.lateness.observe(max((now - timer.due).total_seconds(), 0))

    async def _loop(self) -> None:
        while True:
            self._wake.clear()
            try:
                if self._must_recover:
                    # Claimed timers may be neither sent nor released if the store failed as well.
                    await self.recover()
                    self._must_recover = False
                await self.run_once()
            except MqgateError as error:
                _log.warning("dispatch failed", error=error.detail)
                self._must_recover = True
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                continue
            wait = _MAX_SLEEP
            if self._next is not None:
                wait = min(max((self._next - self._clock()).total_seconds(), 0), wait)
            # Not wait_for: before Python 3.12 it can swallow a cancellation that coincides with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
