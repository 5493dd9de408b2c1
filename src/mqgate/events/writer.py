"""Writes what happened to the gateway's own topic, once a second or so, while anything happens.

    take what was noted -> rows -> Arrow (in a thread) -> append

A batch that the log did not take, or may have taken, is sent again with its number until it is answered; nothing new is
encoded meanwhile, and what the recorder then has no room for is dropped and counted. So numbers have no gaps but where
a process ended before its time. Readers drop the second of two batches with one number.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import structlog

from mqgate.background import Background
from mqgate.core.errors import MqgateError
from mqgate.core.events import EVENTS, EVENTS_TOPIC, LAG, POLLS
from mqgate.core.message import Draft, slot_of
from mqgate.events.encoding import Batch, encode
from mqgate.events.recorder import EventRecorder, Taken
from mqgate.events.rows import Active, Part, parts_of
from mqgate.ports.message_log import MessageLog
from mqgate.telemetry.metrics import Metrics

__all__ = ["EventWriter"]

_PAUSE_AFTER_FAILURE = 5.0
_LAST_WORDS = 5.0
# After so long without anything to tell it is said that all is told.
_REST_MS = 5_000
_LAST, _SO_FAR = "true", "so_far"
_log = structlog.get_logger()


class EventWriter:
    """`gateway` is our name; the incarnation is made here. `active` hears to whom something happened."""

    def __init__(
        self,
        log: MessageLog,
        recorder: EventRecorder,
        metrics: Metrics,
        active: Callable[[Active], None],
        *,
        gateway: str,
        queues: int,
        interval: timedelta,
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._metrics = metrics
        self._active = active
        self._gateway = gateway
        self._queues = queues
        self._interval = interval.total_seconds()
        self._incarnation = os.urandom(8).hex()
        self._sequence = 0
        # Taken, but not encoded yet; encoded, but not answered for yet; and what the two hold of the recorder's room.
        self._taken: Taken | None = None
        self._pending: deque[Batch] = deque()
        self._reserved = 0
        # When anything was told last, and what was said of it: see `last`.
        self._told_at = recorder.now()
        self._end = ""
        self._is_topic_there = False
        self._is_failing = False
        self._turn = asyncio.Lock()
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        """Write what is left, and that it was the last; what the log does not take now is lost."""
        if not await self._background.stop():
            return
        try:
            async with asyncio.timeout(_LAST_WORDS):
                is_done = await self.run_once(is_last=True)
        except TimeoutError:
            is_done = False
        if not is_done:
            _log.warning("the last events were not written", batches=len(self._pending))

    async def run_once(self, *, is_last: bool = False) -> bool:
        """Write what happened so far; False: the log does not take it now, and it is kept."""
        async with self._turn:
            try:
                if not self._is_topic_there:
                    await self._log.create(EVENTS_TOPIC, self._queues)
                    self._is_topic_there = True
                await self._send()
                await self._encode(is_last=is_last)
                await self._send()
            except MqgateError as error:
                # Whoever removed the topic: it is made again.
                self._is_topic_there = False
                if not self._is_failing:
                    _log.warning("events wait until they can be written", error=error.detail)
                self._is_failing = True
                return False
            self._is_failing = False
            return True

    async def _encode(self, *, is_last: bool) -> None:
        # Kept until it is encoded: whoever stops us in between will do it.
        taken = self._taken = self._taken or self._recorder.take()
        batches: list[Batch] = []
        try:
            if taken.reserved or taken.polls:
                batches, active = await asyncio.to_thread(_encoded, taken, self._recorder.now())
                self._active(active)
        except Exception:  # noqa: BLE001 - a bug here must not stop the gateway, nor hide
            _log.exception("events were dropped", rows=taken.reserved)
            self._recorder.drop(taken.reserved)
        now = self._recorder.now()
        if batches:
            self._told_at, self._end = now, ""
        elif (is_last and self._sequence) or (not self._end and now - self._told_at >= _REST_MS):
            batches, self._end = await asyncio.to_thread(encode, EVENTS, []), _SO_FAR
        if is_last:
            self._end = _LAST
        self._pending.extend(batches)
        self._taken, self._reserved = None, taken.reserved

    async def _send(self) -> None:
        """Append what is pending, all at once; they are of one queue, so none is stored behind one that failed."""
        if self._pending:
            drafts = [self._draft(batch, number) for number, batch in enumerate(self._pending, self._sequence + 1)]
            if self._end == _SO_FAR and self._recorder.untaken:
                # It was, when it was written; then the log did not take it.
                self._end = ""
            if self._end:
                drafts[-1] = drafts[-1]._replace(properties={**drafts[-1].properties, "last": self._end})
            for outcome in await self._log.append(EVENTS_TOPIC, drafts):
                if isinstance(outcome, MqgateError):
                    raise outcome
                self._sequence += 1
                self._metrics.events.inc(self._pending.popleft().rows)
        self._recorder.release(self._reserved)
        self._reserved = 0

    def _draft(self, batch: Batch, sequence: int) -> Draft:
        properties = {
            "schema": batch.table.schema,
            "gateway": self._gateway,
            "incarnation": self._incarnation,
            "sequence": str(sequence),
            "sent_at": str(self._recorder.now()),
            "dropped": str(self._recorder.dropped),
        }
        message_id = f"{self._incarnation}{sequence:016x}"
        return Draft(message_id, batch.body, self._gateway, None, properties, slot_of(self._gateway))

    async def _loop(self) -> None:
        while True:
            if await self.run_once():
                # Who has said that all is told must take it back at once.
                await self._recorder.wait(self._interval, is_any_worth_it=bool(self._end))
            else:
                await asyncio.sleep(max(self._interval, _PAUSE_AFTER_FAILURE))


def _encoded(taken: Taken, now_ms: int) -> tuple[list[Batch], Active]:
    parts, active = parts_of(taken.notes)
    batches = encode(EVENTS, parts) if any(map(sum, (part.counts for part in parts))) else []
    polls = [
        (now_ms, topic, group, client or None, end, count) for (topic, group, client, end), count in taken.polls.items()
    ]
    for table, rows in ((LAG, taken.lags), (POLLS, polls)):
        if rows:
            names = [name for name, _ in table.columns]
            batches += encode(table, [Part([1] * len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)))])
    return batches, active
