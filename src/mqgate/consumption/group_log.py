"""The queues that a group reads: those of its topic, and those of its private log of redriven messages."""

import json
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any

from mqgate.core.entries import Group
from mqgate.core.errors import TopicNotFound
from mqgate.core.lease import QueueBounds
from mqgate.core.message import Draft, Message
from mqgate.core.names import OWN_PREFIX, retry_topic
from mqgate.ports.message_log import MessageLog, TopicBounds
from mqgate.ports.offset_mirror import OffsetMirror

_RETRY = "retry-"
_ORIGIN = f"{OWN_PREFIX}origin"


def private_queue(queue: str) -> str:
    """Return the name of a queue of the private log, as consumers see it."""
    return f"{_RETRY}{queue}"


def redriven(message: Message) -> Draft:
    """Return a dead letter as a draft for the private log. It carries its origin in hidden properties."""
    origin = json.dumps([message.topic, message.queue, message.offset, message.stored_ms])
    properties = {**message.properties, _ORIGIN: origin}
    return Draft(message.id, message.body, message.key, message.tag, properties, 0)


def _original(message: Message) -> Message:
    """Return a message as it was before it was redriven."""
    if _ORIGIN not in message.properties:
        return message
    properties = dict(message.properties)
    topic, queue, offset, stored_ms = json.loads(properties.pop(_ORIGIN))
    return message._replace(topic=topic, queue=queue, offset=offset, stored_ms=stored_ms, properties=properties)


class GroupLog:
    """The message log as one group sees it. Queues of the private log are named `retry-<queue>`."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log

    def bounds(self, group: Group, since: int = 0) -> Coroutine[Any, Any, TopicBounds]:
        # Most groups have no private log, and every receive asks for it.
        if self._log.is_known_missing(retry_topic(group.name)):
            return self._log.bounds(group.topic, since)
        return self._both_bounds(group, since)

    async def _both_bounds(self, group: Group, since: int) -> TopicBounds:
        bounds = await self._log.bounds(group.topic, since)
        try:
            private = await self._log.bounds(retry_topic(group.name), since)
        except TopicNotFound:
            return bounds
        return _merged(bounds, private)

    async def current_bounds(self, group: Group, *, is_complete: bool = True) -> TopicBounds:
        """Return bounds that include all messages stored before the call, where the queues can be read."""
        bounds = await self._log.current_bounds(group.topic, is_complete=is_complete)
        topic = retry_topic(group.name)
        if not is_complete and self._log.is_known_missing(topic):
            return bounds
        try:
            private = await self._log.current_bounds(topic, is_complete=is_complete)
        except TopicNotFound:
            return bounds
        return _merged(bounds, private)

    def read(
        self, group: Group, queue: str, offset: int, max_count: int, max_bytes: int
    ) -> Coroutine[Any, Any, Sequence[Message]]:
        if queue.startswith(_RETRY):
            return self._read_private(group, queue, offset, max_count, max_bytes)
        return self._log.read(group.topic, queue, offset, max_count, max_bytes, group.name)

    async def _read_private(
        self, group: Group, queue: str, offset: int, max_count: int, max_bytes: int
    ) -> Sequence[Message]:
        topic, own = retry_topic(group.name), queue.removeprefix(_RETRY)
        found = await self._log.read(topic, own, offset, max_count, max_bytes, group.name)
        return [_original(message)._replace(topic=group.topic, queue=queue, offset=message.offset) for message in found]

    async def original(self, group: Group, queue: str, offset: int) -> Message | None:
        """Return a message with its original queue and offset, also if it was redriven."""
        topic = group.topic
        if queue.startswith(_RETRY):
            topic, queue = retry_topic(group.name), queue.removeprefix(_RETRY)
        found = await self._log.read(topic, queue, offset, 1, 1, group.name)
        return _original(found[0]) if found else None

    async def starts(
        self, group: Group, bounds: Mapping[str, QueueBounds], since: datetime | None
    ) -> Mapping[str, int]:
        """Return the start offsets of a group. Its private log always starts at the first message."""
        if group.start == "latest":
            starts = {queue: head.max for queue, head in bounds.items()}
        else:
            starts = {queue: head.min for queue, head in bounds.items()}
        if since is not None:
            found = await self._log.offsets_at(group.topic, since)
            starts |= {queue: max(bounds[queue].min, min(at, bounds[queue].max)) for queue, at in found.items()}
        return starts | {queue: head.min for queue, head in bounds.items() if queue.startswith(_RETRY)}

    async def mirrored(self, group: Group, mirror: OffsetMirror, queues: Sequence[str]) -> Mapping[str, int | None]:
        """Return the mirrored offsets of a group. Queues that cannot be read now are missing."""
        own = [queue for queue in queues if not queue.startswith(_RETRY)]
        found = dict(await mirror.read(group.name, group.topic, own))
        private = [queue.removeprefix(_RETRY) for queue in queues if queue.startswith(_RETRY)]
        again = await mirror.read(group.name, retry_topic(group.name), private)
        return found | {f"{_RETRY}{queue}": at for queue, at in again.items()}

    @staticmethod
    def by_topic(group: Group, offsets: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Return the offsets of a group by the topic that stores the queues."""
        found: dict[str, dict[str, int]] = {}
        for queue, at in offsets.items():
            topic = retry_topic(group.name) if queue.startswith(_RETRY) else group.topic
            found.setdefault(topic, {})[queue.removeprefix(_RETRY)] = at
        return found

    async def offsets_at(self, group: Group, since: datetime) -> Mapping[str, int]:
        return await self._log.offsets_at(group.topic, since)


def _merged(bounds: TopicBounds, private: TopicBounds) -> TopicBounds:
    queues = {**bounds.queues, **{f"{_RETRY}{queue}": head for queue, head in private.queues.items()}}
    closed = bounds.closed | {f"{_RETRY}{queue}" for queue in private.closed}
    boots = {**bounds.boots, **{f"{_RETRY}{queue}": boot for queue, boot in private.boots.items()}}
    last_append_ms = {
        **bounds.last_append_ms,
        **{f"{_RETRY}{queue}": at for queue, at in private.last_append_ms.items()},
    }
    is_growth = bounds.is_growth and private.is_growth
    return TopicBounds(min(bounds.version, private.version), queues, closed, boots, last_append_ms, is_growth)
