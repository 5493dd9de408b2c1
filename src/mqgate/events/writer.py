"""Writes recorded events to the topic `mqgate_events`, about once per second while there are any.

    take recorded events -> build rows -> encode as Arrow (in a thread) -> append

If an append fails or its outcome is unknown, the batch is sent again with the same number until the log confirms it. No
new events are encoded meanwhile, and the recorder drops and counts rows beyond its limit. So a number is missing only
if a process was killed. Readers ignore the second of two batches with the same number.
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
from mqgate.events.encoding import EventBatch, encode
from mqgate.events.recorder import EventRecorder, TakenEvents
from mqgate.events.rows import ActiveNames, Part, build_parts
from mqgate.ports.message_log import MessageLog
from mqgate.telemetry.metrics import Metrics

__all__ = ["EventWriter"]

_RETRY_PAUSE = 5.0
_STOP_TIMEOUT = 5.0
# After this time without events, an empty batch reports that all events are written.
_IDLE_MS = 5_000
_LAST, _SO_FAR = "true", "so_far"
_log = structlog.get_logger()


class EventWriter:
    """Background service that writes the events of one gateway. `on_active` receives the names that have new events."""

    def __init__(
        self,
        log: MessageLog,
        recorder: EventRecorder,
        metrics: Metrics,
        on_active: Callable[[ActiveNames], None],
        *,
        gateway: str,
        queues: int,
        interval: timedelta,
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._metrics = metrics
        self._on_active = on_active
        self._gateway = gateway
        self._queues = queues
        self._interval = interval.total_seconds()
        self._incarnation = os.urandom(8).hex()
        self._sequence = 0
        # Events that are not encoded yet, batches that are not confirmed yet, and the rows reserved for both.
        self._taken: TakenEvents | None = None
        self._pending: deque[EventBatch] = deque()
        self._reserved = 0
        # The time of the last batch with events, and the `last` property of the newest batch (see core.events).
        self._last_batch_ms = recorder.now()
        self._last_property = ""
        self._topic_exists = False
        self._is_failing = False
        self._lock = asyncio.Lock()
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        """Write the remaining events and the final batch. Events that the log does not accept in time are lost."""
        if not await self._background.stop():
            return
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                is_done = await self.run_once(is_last=True)
        except TimeoutError:
            is_done = False
        if not is_done:
            _log.warning("final events not written", batches=len(self._pending))

    async def run_once(self, *, is_last: bool = False) -> bool:
        """Write all events. Return False if the log did not accept them; they are kept for the next call."""
        async with self._lock:
            try:
                if not self._topic_exists:
                    await self._log.create(EVENTS_TOPIC, self._queues, is_per_broker=True)
                    self._topic_exists = True
                await self._send()
                await self._encode(is_last=is_last)
                await self._send()
            except MqgateError as error:
                # The topic may have been deleted, so it is created again.
                self._topic_exists = False
                if not self._is_failing:
                    _log.warning("event write failed; retrying", error=error.detail)
                self._is_failing = True
                return False
            self._is_failing = False
            return True

    async def _encode(self, *, is_last: bool) -> None:
        # Kept until encoded: if this call is cancelled, the next one continues.
        taken = self._taken = self._taken or self._recorder.take()
        batches: list[EventBatch] = []
        try:
            if taken.reserved or taken.polls:
                batches, active = await asyncio.to_thread(_encode_all, taken, self._recorder.now())
                self._on_active(active)
        except Exception:  # noqa: BLE001 - a bug here must not stop the gateway; it is logged
            _log.exception("events dropped", rows=taken.reserved)
            self._recorder.drop(taken.reserved)
        now = self._recorder.now()
        if batches:
            self._last_batch_ms, self._last_property = now, ""
        elif (is_last and self._sequence) or (not self._last_property and now - self._last_batch_ms >= _IDLE_MS):
            batches, self._last_property = await asyncio.to_thread(encode, EVENTS, []), _SO_FAR
        if is_last:
            self._last_property = _LAST
        self._pending.extend(batches)
        self._taken, self._reserved = None, taken.reserved

    async def _send(self) -> None:
        """Append the pending batches together. They share one queue, so none is stored after one that failed."""
        if self._pending:
            drafts = [self._draft(batch, number) for number, batch in enumerate(self._pending, self._sequence + 1)]
            if self._last_property == _SO_FAR and self._recorder.untaken:
                # New events were recorded since this batch was encoded, so it is no longer complete.
                self._last_property = ""
            if self._last_property:
                drafts[-1] = drafts[-1]._replace(properties={**drafts[-1].properties, "last": self._last_property})
            for outcome in await self._log.append(EVENTS_TOPIC, drafts):
                if isinstance(outcome, MqgateError):
                    raise outcome
                self._sequence += 1
                self._metrics.events.inc(self._pending.popleft().rows)
        self._recorder.release(self._reserved)
        self._reserved = 0

    def _draft(self, batch: EventBatch, sequence: int) -> Draft:
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
                # After an empty `so_far` batch, a new event is written at once.
                await self._recorder.wait(self._interval, for_any_row=bool(self._last_property))
            else:
                await asyncio.sleep(max(self._interval, _RETRY_PAUSE))


def _encode_all(taken: TakenEvents, now_ms: int) -> tuple[list[EventBatch], ActiveNames]:
    parts, active = build_parts(taken.events)
    batches = encode(EVENTS, parts) if any(map(sum, (part.counts for part in parts))) else []
    polls = [
        (now_ms, topic, group, client or None, outcome, count)
        for (topic, group, client, outcome), count in taken.polls.items()
    ]
    for table, rows in ((LAG, taken.lags), (POLLS, polls)):
        if rows:
            names = [name for name, _ in table.columns]
            batches += encode(table, [Part([1] * len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)))])
    return batches, active
