"""Reads messages from RocketMQ with as few pulls as possible.

Redelivered messages are scattered over their queue, and one receive may read dozens of single messages. Of the small
reads of one queue that start in the same iteration of the event loop, the first one sends its own pull, because it is
mostly the only one. The others share a pull if they are close together. A read whose messages are not in the shared
pull sends its own.

A read of more than one page continues with several concurrent pulls. Bulk reads collect columns directly from the
records, without creating messages.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from mqgate.adapters.rocketmq.faults import translated
from mqgate.adapters.rocketmq.topics import Queue, Topic, Topics
from mqgate.adapters.rocketmq.translate import messages_of
from mqgate.core.errors import MqgateError, QueueUnavailable, StorageUnavailable, TopicNotFound
from mqgate.core.message import Message, body_of
from mqgate.core.message_page import MessagePage
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.columns import Rows
from mqgate.rocketmq.errors import RocketMQError
from mqgate.rocketmq.messages import Status
from mqgate.rocketmq.paging import DEFAULT_PULL_SIZE, Page, Paging
from mqgate.rocketmq.puller import READABLE_PAUSES, pull_undecoded
from mqgate.rocketmq.read_ahead import pages
from mqgate.rocketmq.remoting.pulled_page import PulledPage, decode_page

__all__ = ["LogReader"]

# Concurrent pulls of one large read.
_AHEAD = 4
_RECENT = 3.0
_Page = TypeVar("_Page", bound=Page)
_Taken_contra = TypeVar("_Taken_contra", contravariant=True)


class _PendingRead(NamedTuple):
    offset: int
    max_count: int
    page: asyncio.Future[MessagePage]

    @property
    def end(self) -> int:
        return self.offset + self.max_count


class _Collector(Protocol[_Taken_contra]):
    """The result of one read, up to its limits. The first message is always included."""

    end: int

    def add(self, page: _Taken_contra, /) -> bool:
        """Add messages of a page. Return False if a limit is reached."""


class _Messages:
    def __init__(self, offset: int, max_count: int, max_bytes: int) -> None:
        self.messages: list[Message] = []
        self.end = offset
        self._max_count = max_count
        self._bytes_left = max_bytes

    def add(self, page: Sequence[Message]) -> bool:
        self._bytes_left -= sum(map(len, map(body_of, page)))
        if self._bytes_left < 0:
            self.messages += self._fitting(page)
            return False
        self.messages += page
        self.end += len(page)
        return len(self.messages) < self._max_count

    def _fitting(self, page: Sequence[Message]) -> Sequence[Message]:
        """Return the messages of a page that fit."""
        kept = len(page)
        while self._bytes_left < 0 and kept > (0 if self.messages else 1):
            kept -= 1
            self._bytes_left += len(page[kept].body)
        return page[:kept]


class _Rows:
    def __init__(self, rows: Rows, offset: int, max_count: int, max_bytes: int) -> None:
        self.rows = rows
        self.end = offset
        self._max_count = max_count
        self._max_bytes = max_bytes

    def add(self, page: PulledPage) -> bool:
        fitting = page[: self._max_count - self.rows.count].fitting(self._max_bytes - self.rows.bytes)
        if not fitting and not self.rows.count:
            fitting = page[:1]
        self.rows.add(fitting)
        self.end += len(fitting)
        return len(fitting) == len(page) and self.rows.count < self._max_count


class LogReader:
    def __init__(self, client: RocketMQClient, topics: Topics) -> None:
        self._client = client
        self._topics = topics
        self._pending: dict[tuple[Queue, str], list[_PendingRead]] = {}
        self._pulls: set[asyncio.Task[None]] = set()

    async def read(
        self, topic: Topic, queue: Queue, offset: int, max_count: int, max_bytes: int, group: str
    ) -> Sequence[Message]:
        """Return consecutive messages from an offset, up to the limits."""
        if max_count < DEFAULT_PULL_SIZE and self._is_shared(topic, queue, group):
            page = await self._shared(queue, offset, max_count, group)
        else:
            pulled = await self._pull_page(topic, queue, offset, max_count, group)
            page = messages_of(topic.name, queue.name, pulled[:max_count] if len(pulled) > max_count else pulled)
        # The common case: one page is the whole result.
        if len(page) == max_count and sum(page.sizes) <= max_bytes:
            return page
        found = _Messages(offset, max_count, max_bytes)
        if not page or found.add(page):
            retry = partial(self._page, topic, queue, group=group)
            pull = partial(self._pull, topic, queue, group=group)
            await _collect(queue, found, offset + max_count, page, retry, pull)
        return found.messages

    async def read_columns(
        self, topic: Topic, queue: Queue, offset: int, max_count: int, max_bytes: int, group: str, rows: Rows
    ) -> None:
        """Add consecutive records from an offset to `rows`, up to the limits. Properties count towards the bytes."""
        pull = partial(self._pull_page, topic, queue, group=group)
        found = _Rows(rows, offset, max_count, max_bytes)
        page = await pull(offset, max_count)
        if not len(page) or found.add(page):
            await _collect(queue, found, offset + max_count, page, pull, pull)

    async def _page(self, topic: Topic, queue: Queue, offset: int, max_count: int, group: str) -> MessagePage:
        """Return the messages of one pull, which is shared if the read is small."""
        if max_count < DEFAULT_PULL_SIZE and self._is_shared(topic, queue, group):
            return await self._shared(queue, offset, max_count, group)
        return (await self._pull(topic, queue, offset, max_count, group))[:max_count]

    def _is_shared(self, topic: Topic, queue: Queue, group: str) -> bool:
        """Return whether another small read of the queue has started in this iteration of the event loop."""
        if (queue, group) in self._pending:
            return True
        self._pending[queue, group] = []
        asyncio.get_running_loop().call_soon(self._start_shared_pulls, topic, queue, group)
        return False

    async def _shared(self, queue: Queue, offset: int, max_count: int, group: str) -> MessagePage:
        """Return the messages of a small read from a shared pull."""
        read = _PendingRead(offset, max_count, asyncio.get_running_loop().create_future())
        self._pending[queue, group].append(read)
        return await read.page

    def _start_shared_pulls(self, topic: Topic, queue: Queue, group: str) -> None:
        reads = sorted(self._pending.pop((queue, group)), key=lambda read: read.offset)
        while reads:
            end = reads[0].offset + DEFAULT_PULL_SIZE
            near = [read for read in reads if read.offset < end]
            reads = reads[len(near) :]
            task = asyncio.create_task(self._pull_shared(topic, queue, near, group))
            self._pulls.add(task)
            task.add_done_callback(self._pulls.discard)

    async def _pull_shared(self, topic: Topic, queue: Queue, reads: Sequence[_PendingRead], group: str) -> None:
        first = reads[0]
        max_count = max(read.end for read in reads) - first.offset
        try:
            page = await self._pull(topic, queue, first.offset, max_count, group)
            for read in reads:
                skipped = read.offset - first.offset
                own = page[skipped : skipped + read.max_count]
                if not own and read is not first and page:
                    own = (await self._pull(topic, queue, read.offset, read.max_count, group))[: read.max_count]
                if not read.page.done():
                    read.page.set_result(own)
        except MqgateError as error:
            for read in reads:
                if not read.page.done():
                    read.page.set_exception(error)
        finally:
            # No read is left waiting after an unexpected error or when the log is closed.
            for read in reads:
                read.page.cancel()

    async def _pull(self, topic: Topic, queue: Queue, offset: int, max_count: int, group: str) -> MessagePage:
        """Return the messages of one pull, consecutive from the offset."""
        return messages_of(topic.name, queue.name, await self._pull_page(topic, queue, offset, max_count, group))

    async def _pull_page(self, topic: Topic, queue: Queue, offset: int, max_count: int, group: str) -> PulledPage:
        requested_at = time.monotonic()
        try:
            pulled, data = await pull_undecoded(
                self._client, queue.broker, topic.wire, queue.id, offset, max_count, group=group
            )
            page = decode_page(data)
        except RocketMQError as error:
            raise await self._fault(topic, queue, error) from error
        if pulled.status is Status.FOUND or pulled.status is Status.MOVED:
            self._topics.report_bounds(topic, queue, pulled.min_offset, pulled.max_offset, requested_at)
        return page.from_offset(offset)

    async def _fault(self, topic: Topic, queue: Queue, error: RocketMQError) -> MqgateError:
        """Return the error to raise for a failed pull, and close the queues of the broker if it is unavailable."""
        fault = translated(error, topic.name)
        if isinstance(fault, StorageUnavailable):
            detail = f"queue {queue.name} cannot be read now: {fault.detail}"
        elif isinstance(fault, TopicNotFound) and not await self._topics.is_deleted(topic):
            detail = f"broker {queue.broker} does not have the topic"
        else:
            return fault
        self._topics.close_queues(topic, queue.broker)
        return QueueUnavailable(detail, queue=queue.name, retry_after=1)

    async def close(self) -> None:
        for task in self._pulls:
            task.cancel()
        await asyncio.gather(*self._pulls, return_exceptions=True)


def _is_confirmed(queue: Queue, offset: int) -> bool:
    """Return whether a message at the offset was confirmed recently, so that the broker will return it soon."""
    return offset < queue.confirmed_end and time.monotonic() < queue.confirmed_at + _RECENT


async def _collect(
    queue: Queue,
    found: _Collector[_Page],
    end: int,
    page: _Page,
    retry: Callable[[int, int], Awaitable[_Page]],
    pull: Callable[[int, int], Awaitable[_Page]],
) -> None:
    """Collect the messages after the first page with concurrent pulls. An empty first page is retried."""
    if not len(page):
        page = await _pull_confirmed(queue, retry, found.end, end - found.end, page)
        if not len(page) or not found.add(page):
            return
    end = end if queue.bounds is None else min(end, queue.bounds.max)
    if found.end >= end:
        return
    paging = Paging[_Page](found.end, end, ahead=_AHEAD)
    async with aclosing(pages(paging, partial(_pull_confirmed, queue, pull))) as rest:
        async for following in rest:
            if not found.add(following):
                return


async def _pull_confirmed(
    queue: Queue, pull: Callable[[int, int], Awaitable[_Page]], offset: int, max_count: int, page: _Page | None = None
) -> _Page:
    """Pull until the page contains messages, as long as a confirmed message is expected. `page`: the first result."""
    pauses = iter(READABLE_PAUSES)
    while page is None or not len(page):
        if page is not None:
            pause = next(pauses, None) if _is_confirmed(queue, offset) else None
            if pause is None:
                break
            await asyncio.sleep(pause)
        page = await pull(offset, max_count)
    return page
