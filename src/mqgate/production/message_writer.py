"""Writes a message to the log, or to the timers until it is due."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from mqgate.core.entries import Topic
from mqgate.core.errors import MqgateError
from mqgate.core.message import Draft, Stored
from mqgate.events.recorder import EventRecorder
from mqgate.ports.message_log import MessageLog
from mqgate.ports.timer_store import Timer, TimerState, TimerStore
from mqgate.telemetry.metrics import Metrics


class Item(NamedTuple):
    """A message to publish: now, or when it is due."""

    draft: Draft
    due: datetime | None = None
    idempotency_key: str | None = None


class Published(NamedTuple):
    """Where a message is stored, or when it will be delivered."""

    id: str
    stored: Stored | None
    due: datetime | None
    is_duplicate: bool = False


class MessageWriter:
    """Writer of accepted messages. `planned` is called with the first due time of each write."""

    def __init__(
        self,
        log: MessageLog,
        timers: TimerStore,
        planned: Callable[[datetime], None],
        metrics: Metrics,
        recorder: EventRecorder,
    ) -> None:
        self._log = log
        self._timers = timers
        self._planned = planned
        self._metrics = metrics
        self._recorder = recorder

    async def write(self, topic: Topic, items: Sequence[Item], producer: str = "") -> list[Published | MqgateError]:
        """Store and schedule messages durably; return one outcome per message in the order given.

        An error that is raised concerns all messages, but messages without a due time may be stored already.
        """
        now = [item.draft for item in items if item.due is None]
        later = [
            Timer(topic.name, item.draft, item.due, producer=producer or None) for item in items if item.due is not None
        ]
        stored = await self._log.append(topic.name, now, producer) if now else ()
        if now:
            self._recorder.published(topic.name, producer, now, stored)
        if later:
            await self._timers.add(later)
            drafts, due = [timer.draft for timer in later], [timer.due for timer in later]
            self._recorder.scheduled(topic.name, producer, drafts, due)
            self._planned(min(due))
            self._metrics.scheduled.inc(len(later))
        self._metrics.published.labels(topic.name).inc(sum(isinstance(outcome, Stored) for outcome in stored))
        if not later:
            return [_published(draft.id, outcome) for draft, outcome in zip(now, stored, strict=True)]
        outcomes = iter(stored)
        return [
            Published(item.draft.id, None, item.due) if item.due else _published(item.draft.id, next(outcomes))
            for item in items
        ]

    async def find(self, topic: Topic, message_id: str) -> Published | None:
        """Return a message that is stored in the log or scheduled."""
        message = await self._log.find(topic.name, message_id)
        if message is not None:
            return Published(message.id, Stored(message.queue, message.offset, message.stored_at), None)
        timer = await self._timers.get(message_id)
        return None if timer is None else Published(timer.draft.id, None, timer.due)

    async def find_scheduled(self, message_id: str) -> Published | None:
        """Return a message that is still scheduled, as a duplicate."""
        timer = await self._timers.get(message_id)
        if timer is None or timer.state is not TimerState.SCHEDULED:
            return None
        return Published(timer.draft.id, None, timer.due, is_duplicate=True)


def _published(message_id: str, outcome: Stored | MqgateError) -> Published | MqgateError:
    # A tuple is built directly: a batch builds a hundred of them, and a call by field names is slow.
    return outcome if isinstance(outcome, MqgateError) else tuple.__new__(Published, (message_id, outcome, None, False))
