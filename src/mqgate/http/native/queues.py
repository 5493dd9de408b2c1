"""The handler that lists the queues of a topic with their bounds and times. Groups are not affected."""

import asyncio
from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from mqgate.control.registry.service import Registry
from mqgate.core.cursors import invalid_cursor
from mqgate.core.errors import QueueUnavailable
from mqgate.core.lease import QueueBounds
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import query, query_instant
from mqgate.http.native.registry import check_limit
from mqgate.http.native.schemas import maybe_instant
from mqgate.http.operation import describe
from mqgate.ports.message_log import MessageLog, TopicBounds

__all__ = ["QueuesApi"]

_MAX_CONCURRENT = 32
_NO_QUEUE = (1 << 31, "")


class QueuesQuery(Struct, rename="camel", forbid_unknown_fields=True):
    limit: int = 100
    cursor: str | None = None
    at: str | None = None
    times: bool = True


class QueueOut(Struct, rename="camel"):
    queue: str
    open: bool
    min: int | None
    max: int | None
    first_stored_at: str | None
    last_stored_at: str | None
    offset_at: int | None | UnsetType = UNSET


class Queues(Struct):
    items: list[QueueOut]
    next: str | None


class QueuesApi:
    def __init__(self, registry: Registry, log: MessageLog) -> None:
        self._registry = registry
        self._log = log
        self._reads = asyncio.Semaphore(_MAX_CONCURRENT)

    @describe("listQueues", "messages", query=QueuesQuery, responses={200: Queues}, errors=(404,))
    async def list(self, request: Request) -> Response:
        """List the queues of a topic with their bounds."""
        topic = await self._registry.readable(request.path("topic"))
        requested = query(request, QueuesQuery)
        at = query_instant(requested.at, "at")
        limit = check_limit(requested.limit)
        last = None if requested.cursor is None else _order(requested.cursor)
        if last is not None and (last >= _NO_QUEUE or not last[1]):
            raise invalid_cursor()
        bounds = await self._log.bounds(topic)
        names = sorted(bounds.queues.keys() | bounds.closed, key=_order)
        rest = [name for name in names if last is None or _order(name) > last]
        offsets = None if at is None else await self._log.offsets_at(topic, at)
        items = await asyncio.gather(
            *(self._queue_out(topic, name, bounds, offsets, is_timed=requested.times) for name in rest[:limit])
        )
        return reply(200, Queues(items, rest[limit - 1] if len(rest) > limit else None))

    async def _queue_out(
        self, topic: str, name: str, bounds: TopicBounds, offsets: Mapping[str, int] | None, *, is_timed: bool
    ) -> QueueOut:
        head = bounds.queues.get(name)
        if head is None or name in bounds.closed:
            return _closed_out(name, head, offsets)
        times: tuple[str | None, str | None] = (None, None)
        if is_timed and head.min < head.max:
            try:
                first = self._stored_at(topic, name, head.min)
                times = await asyncio.gather(first, self._stored_at(topic, name, head.max - 1))
            except QueueUnavailable:
                return _closed_out(name, head, offsets)
        return QueueOut(name, True, *head, *times, _offset_at(name, head, offsets))

    async def _stored_at(self, topic: str, queue: str, offset: int) -> str | None:
        async with self._reads:
            found = await self._log.read(topic, queue, offset, 1, 1)
        return maybe_instant(found[0].stored_at if found else None)


def _closed_out(name: str, head: QueueBounds | None, offsets: Mapping[str, int] | None) -> QueueOut:
    """Return a closed queue with its last known bounds, or null if there are none."""
    low, end = head or (None, None)
    return QueueOut(name, False, low, end, None, None, UNSET if offsets is None else None)


def _offset_at(name: str, head: QueueBounds, offsets: Mapping[str, int] | None) -> int | None | UnsetType:
    if offsets is None:
        return UNSET
    found = offsets.get(name)
    # Messages may have arrived between the two reads. The offset must not exceed the returned maximum.
    return None if found is None else min(found, head.max)


def _order(queue: str) -> tuple[int, str]:
    """Return the sort key of a queue: its number, then its broker. An invalid name is sorted last."""
    broker, _, number = queue.rpartition(":")
    is_number = number.isascii() and number.isdigit() and len(number) < 10  # noqa: PLR2004 - digits
    return int(number) if is_number else _NO_QUEUE[0], broker
