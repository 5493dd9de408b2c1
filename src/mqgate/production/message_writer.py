"""Where a message goes: into the log now, or among the timers until it is due."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, NamedTuple

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
    """Where a message came to lie, or when it will be delivered."""

    id: str
    stored: Stored | None
    due: datetime | None
    is_duplicate: bool = False


class MessageWriter:
    """`planned` hears of every due time, so that the mover wakes up for it."""

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

    def store(
        self, topic: Topic, items: Sequence[Item], producer: str = ""
    ) -> Coroutine[Any, Any, list[Published | MqgateError]]:
        """Store and schedule messages, durably; what became of each, in the order given.

        What is raised concerns all of them, but some of those without a due time may be stored by then.
        """
        if len(items) == 1 and items[0][1] is None:
            return self._store_one(topic.name, items[0][0], producer)
        return self._store(topic, items, producer)

    async def _store(self, topic: Topic, items: Sequence[Item], producer: str) -> list[Published | MqgateError]:
        now = [item.draft for item in items if item.due is None]
        later = [Timer(topic.name, item.draft, item.due) for item in items if item.due is not None]
        stored = await self._log.append(topic.name, now, producer) if now else ()
        if now:
            self._recorder.published(topic.name, producer, now, stored)
        if later:
            await self._timers.add(later)
            self._recorder.scheduled(topic.name, producer, [each.draft for each in later], [each.due for each in later])
            self._planned(min(timer.due for timer in later))
            self._metrics.scheduled.inc(len(later))
        self._metrics.published.labels(topic.name).inc(len([each for each in stored if isinstance(each, Stored)]))
        if not later:
            return [_published(draft.id, outcome) for draft, outcome in zip(now, stored, strict=True)]
        outcomes = iter(stored)
        return [
            Published(item.draft.id, None, item.due) if item.due else _published(item.draft.id, next(outcomes))
            for item in items
        ]

    async def _store_one(self, topic: str, draft: Draft, producer: str) -> list[Published | MqgateError]:
        """What most publishes are."""
        drafts = (draft,)
        stored = await self._log.append(topic, drafts, producer)
        self._recorder.published(topic, producer, drafts, stored)
        outcome = stored[0]
        self._metrics.published.labels(topic).inc(1 if isinstance(outcome, Stored) else 0)
        return [_published(draft[0], outcome)]

    async def find(self, topic: Topic, message_id: str) -> Published | None:
        """A message that may have been stored before: in the log, or among the timers."""
        message = await self._log.find(topic.name, message_id)
        if message is not None:
            return Published(message.id, Stored(message.queue, message.offset, message.stored_at), None)
        timer = await self._timers.get(message_id)
        return None if timer is None else Published(timer.draft.id, None, timer.due)

    async def waiting(self, message_id: str) -> Published | None:
        """A message that was scheduled before, and still is: as the answer to a repeat."""
        timer = await self._timers.get(message_id)
        if timer is None or timer.state is not TimerState.SCHEDULED:
            return None
        return Published(timer.draft.id, None, timer.due, is_duplicate=True)


def _published(message_id: str, outcome: Stored | MqgateError) -> Published | MqgateError:
    # Not by its fields' names: a batch makes a hundred.
    return outcome if isinstance(outcome, MqgateError) else tuple.__new__(Published, (message_id, outcome, None, False))
