"""A range of a queue as an Arrow stream.

The first page is read before the response starts, so that errors of the request are returned as usual. After that, the
next page is built while one is sent: a slow client uses the memory of two pages. A failure closes the connection before
the end mark, so that a client cannot mistake a part for the whole.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from mqgate.core.errors import Overloaded
from mqgate.ports.message_columns import schema_of
from mqgate.ports.message_log import MessageLog

__all__ = ["ARROW", "ArrowStream", "BulkReadRequest", "BulkReads"]

ARROW = "application/vnd.apache.arrow.stream"
_PAGE_ROWS = 4_096
_PAGE_BYTES = 2 << 20
# Copying a piece and passing it to the system blocks the event loop for about 0.1 ms.
_PIECE_BYTES = 256 << 10
_MAX_WAIT = 3.0
_END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class BulkReadRequest(NamedTuple):
    """The messages of a queue in [offset, end), with the columns to return."""

    topic: str
    queue: str
    offset: int
    end: int
    columns: Sequence[str]


class BulkReads:
    """Opens streams, at most `max_concurrent` at a time."""

    def __init__(self, log: MessageLog, max_concurrent: int) -> None:
        self._log = log
        self._slots = asyncio.Semaphore(max_concurrent)
        self._max_concurrent = max_concurrent

    async def open(self, request: BulkReadRequest) -> "ArrowStream":
        """Wait for a slot and read the first page. Raise Overloaded if no slot becomes free within 3 s."""
        try:
            async with asyncio.timeout(_MAX_WAIT):
                await self._slots.acquire()
        except TimeoutError:
            raise Overloaded(
                f"{self._max_concurrent} bulk reads are being served. Try again later.", retry_after=1
            ) from None
        stream = ArrowStream(self._log, request, self._slots.release)
        try:
            await stream.begin()
        except BaseException:
            await stream.aclose()
            raise
        return stream


class ArrowStream:
    """The pieces of one bulk read."""

    def __init__(self, log: MessageLog, request: BulkReadRequest, closed: Callable[[], None]) -> None:
        self._log = log
        self._request = request
        self._offset = request.offset
        self._closed: Callable[[], None] | None = closed
        self._pieces: deque[bytes | memoryview] = deque()
        self._next_page: asyncio.Task[memoryview] | None = None

    async def begin(self) -> None:
        page = await self._page()
        self._pieces.append(bytes(schema_of(self._request.columns).serialize()))
        self._cut(page)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes | memoryview:
        if not self._pieces:
            if self._next_page is None:
                raise StopAsyncIteration
            self._cut(await self._next_page)
        return self._pieces.popleft()

    async def aclose(self) -> None:
        """Cancel the page that is being built, and free the slot."""
        closed, self._closed = self._closed, None
        if closed is None:
            return
        try:
            if self._next_page is not None:
                self._next_page.cancel()
                await asyncio.gather(self._next_page, return_exceptions=True)
        finally:
            self._pieces.clear()
            closed()

    def _cut(self, page: memoryview) -> None:
        """Split a page into pieces and start to build the next one. An empty page is the end."""
        if not page:
            self._pieces.append(_END_MARK)
            self._next_page = None
            return
        self._pieces.extend(page[start : start + _PIECE_BYTES] for start in range(0, len(page), _PIECE_BYTES))
        self._next_page = asyncio.create_task(self._page())

    async def _page(self) -> memoryview:
        request = self._request
        rows = min(request.end - self._offset, _PAGE_ROWS)
        if rows <= 0:
            return memoryview(b"")
        # The offset column is always read: offsets may have gaps, so the row count does not give the next offset.
        names = dict.fromkeys((*request.columns, "offset"))
        page = await self._log.read_columns(request.topic, request.queue, self._offset, rows, _PAGE_BYTES, list(names))
        if page.num_rows:
            self._offset = page.column("offset")[-1].as_py() + 1
            page = page.select(list(request.columns))
        # A batch is self-contained because no column has a dictionary.
        return memoryview(await asyncio.to_thread(page.serialize) if page.num_rows else b"")
