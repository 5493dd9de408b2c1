"""How messages get out of RocketMQ: pulls, and few of them.

What is delivered again lies scattered in its queue, and one receive asks for dozens of single messages; one pull each
would keep the broker busier than it needs to be. So small reads of one queue that begin in the same turn of the loop,
and lie close together, share a pull. Whoever does not find its messages in the shared one pulls for itself.

A large read begins like any other. If there is more than a page, it goes on with several pulls under way at once. Who
reads much and wants columns gets them from the records as they lie: no message is made in between.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from mqgate.adapters.rocketmq.faults import translated
from mqgate.adapters.rocketmq.puller import pull_undecoded
from mqgate.adapters.rocketmq.topics import Queue, Topic, Topics
from mqgate.adapters.rocketmq.translate import messages_of
from mqgate.core.errors import MqgateError, QueueUnavailable, StorageUnavailable, TopicNotFound
from mqgate.core.message import Message, body_of
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.columns import Rows
from mqgate.rocketmq.errors import RocketMQError
from mqgate.rocketmq.messages import Status
from mqgate.rocketmq.paging import DEFAULT_PULL_SIZE, Page, Paging
from mqgate.rocketmq.read_ahead import pages
from mqgate.rocketmq.remoting.pulled_page import PulledPage, decode_page

__all__ = ["LogReader"]

# Pulls under way for one large read.
_AHEAD = 4
# A broker shows a message to readers a moment after it has confirmed it.
_SOON = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_RECENT = 3.0
_Page = TypeVar("_Page", bound=Page)
_Taken_contra = TypeVar("_Taken_contra", contravariant=True)


class _PendingRead(NamedTuple):
    offset: int
    max_count: int
    page: asyncio.Future[list[Message]]

    @property
    def end(self) -> int:
        return self.offset + self.max_count


class _Found(Protocol[_Taken_contra]):
    """What one read gathers, as much as is asked for and fits; the first message always does."""

    end: int

    def add(self, page: _Taken_contra, /) -> bool:
        """Take from a page; False: that was enough."""


class _Messages:
    def __init__(self, offset: int, max_count: int, max_bytes: int) -> None:
        self.messages: list[Message] = []
        self.end = offset
        self._most = max_count
        self._room = max_bytes

    def add(self, page: Sequence[Message]) -> bool:
        self._room -= sum(map(len, map(body_of, page)))
        if self._room < 0:
            self.messages += self._fitting(page)
            return False
        self.messages += page
        self.end += len(page)
        return len(self.messages) < self._most

    def _fitting(self, page: Sequence[Message]) -> Sequence[Message]:
        """As much of a page as there was room for."""
        kept = len(page)
        while self._room < 0 and kept > (0 if self.messages else 1):
            kept -= 1
            self._room += len(page[kept].body)
        return page[:kept]


class _Rows:
    def __init__(self, rows: Rows, offset: int, max_count: int, max_bytes: int) -> None:
        self.rows = rows
        self.end = offset
        self._most = max_count
        self._most_bytes = max_bytes

    def add(self, page: PulledPage) -> bool:
        fitting = page[: self._most - self.rows.count].fitting(self._most_bytes - self.rows.bytes)
        if not fitting and not self.rows.count:
            fitting = page[:1]
        self.rows.add(fitting)
        self.end += len(fitting)
        return len(fitting) == len(page) and self.rows.count < self._most


class LogReader:
    def __init__(self, client: RocketMQClient, topics: Topics) -> None:
        self._client = client
        self._topics = topics
        self._pending: dict[tuple[Queue, str], list[_PendingRead]] = {}
        self._pulls: set[asyncio.Task[None]] = set()

    async def read(
        self, topic: Topic, queue: Queue, offset: int, max_count: int, max_bytes: int, group: str
    ) -> list[Message]:
        """Consecutive messages from an offset on, as many as are asked for and fit."""
        if max_count < DEFAULT_PULL_SIZE:
            page = await self._shared(topic, queue, offset, max_count, group)
        else:
            pulled = await self._pull_page(topic, queue, offset, max_count, group)
            page = messages_of(topic.name, queue.name, pulled)[:max_count]
        # Mostly that is all: a full batch.
        if len(page) == max_count and sum(map(len, map(body_of, page))) <= max_bytes:
            return page
        found = _Messages(offset, max_count, max_bytes)
        if not page or found.add(page):
            ways = partial(self._page, topic, queue, group=group), partial(self._pull, topic, queue, group=group)
            await _gather(queue, found, offset + max_count, page, *ways)
        return found.messages

    async def gather(
        self, topic: Topic, queue: Queue, offset: int, max_count: int, max_bytes: int, group: str, rows: Rows
    ) -> None:
        """The same for columns; here properties count towards the bytes too."""
        pull = partial(self._pull_page, topic, queue, group=group)
        found = _Rows(rows, offset, max_count, max_bytes)
        page = await pull(offset, max_count)
        if not len(page) or found.add(page):
            await _gather(queue, found, offset + max_count, page, pull, pull)

    async def _page(self, topic: Topic, queue: Queue, offset: int, max_count: int, group: str) -> list[Message]:
        """One pull's worth, maybe of a pull shared with others."""
        if max_count >= DEFAULT_PULL_SIZE:
            return (await self._pull(topic, queue, offset, max_count, group))[:max_count]
        return await self._shared(topic, queue, offset, max_count, group)

    async def _shared(self, topic: Topic, queue: Queue, offset: int, max_count: int, group: str) -> list[Message]:
        """Less than one pull's worth, of a pull shared with others."""
        reads = self._pending.setdefault((queue, group), [])
        read = _PendingRead(offset, max_count, asyncio.get_running_loop().create_future())
        reads.append(read)
        if len(reads) == 1:
            asyncio.get_running_loop().call_soon(self._begin, topic, queue, group)
        return await read.page

    def _begin(self, topic: Topic, queue: Queue, group: str) -> None:
        reads = sorted(self._pending.pop((queue, group)), key=lambda read: read.offset)
        while reads:
            end = reads[0].offset + DEFAULT_PULL_SIZE
            near = [read for read in reads if read.offset < end]
            reads = reads[len(near) :]
            task = asyncio.create_task(self._serve(topic, queue, near, group))
            self._pulls.add(task)
            task.add_done_callback(self._pulls.discard)

    async def _serve(self, topic: Topic, queue: Queue, reads: Sequence[_PendingRead], group: str) -> None:
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
            # After a bug, or when the log is closed: nobody is left waiting.
            for read in reads:
                read.page.cancel()

    async def _pull(self, topic: Topic, queue: Queue, offset: int, max_count: int, group: str) -> list[Message]:
        """One pull's messages, consecutive from the offset."""
        return messages_of(topic.name, queue.name, await self._pull_page(topic, queue, offset, max_count, group))

    async def _pull_page(self, topic: Topic, queue: Queue, offset: int, max_count: int, group: str) -> PulledPage:
        asked_at = time.monotonic()
        try:
            pulled, data = await pull_undecoded(self._client, topic, queue, offset, max_count, group=group)
            page = decode_page(data)
        except RocketMQError as error:
            raise await self._fault(topic, queue, error) from error
        if pulled.status is Status.FOUND or pulled.status is Status.MOVED:
            self._topics.report_bounds(topic, queue, pulled.min_offset, pulled.max_offset, asked_at)
        return page.from_offset(offset)

    async def _fault(self, topic: Topic, queue: Queue, error: RocketMQError) -> MqgateError:
        """What a pull that failed says of the queue: mostly that it cannot be read now."""
        fault = translated(error, topic.name)
        if isinstance(fault, StorageUnavailable):
            why = f"queue {queue.name} cannot be read now: {fault.detail}"
        elif isinstance(fault, TopicNotFound) and not await self._topics.is_deleted(topic):
            why = f"broker {queue.broker} lacks the topic"
        else:
            return fault
        self._topics.close_queues(topic, queue.broker)
        return QueueUnavailable(why, queue=queue.name, retry_after=1)

    async def close(self) -> None:
        for task in self._pulls:
            task.cancel()
        await asyncio.gather(*self._pulls, return_exceptions=True)


def _is_late(queue: Queue, offset: int) -> bool:
    """Whether a message was confirmed there, so that it must show up."""
    return offset < queue.confirmed_end and time.monotonic() < queue.confirmed_at + _RECENT


async def _gather(
    queue: Queue,
    found: _Found[_Page],
    end: int,
    page: _Page,
    first: Callable[[int, int], Awaitable[_Page]],
    further: Callable[[int, int], Awaitable[_Page]],
) -> None:
    """What there is behind the first page, with several pulls under way at once; an empty one may just be too early."""
    if not len(page):
        page = await _awaited(queue, first, found.end, end - found.end, page)
        if not len(page) or not found.add(page):
            return
    end = end if queue.bounds is None else min(end, queue.bounds.max)
    if found.end >= end:
        return
    paging = Paging[_Page](found.end, end, ahead=_AHEAD)
    async with aclosing(pages(paging, partial(_awaited, queue, further))) as rest:
        async for each in rest:
            if not found.add(each):
                return


async def _awaited(
    queue: Queue, pull: Callable[[int, int], Awaitable[_Page]], offset: int, max_count: int, page: _Page | None = None
) -> _Page:
    """What a pull gives, or gave; where a message was confirmed just now, it is waited for."""
    pauses = iter(_SOON)
    while page is None or not len(page):
        if page is not None:
            pause = next(pauses, None) if _is_late(queue, offset) else None
            if pause is None:
                break
            await asyncio.sleep(pause)
        page = await pull(offset, max_count)
    return page
