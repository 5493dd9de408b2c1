"""A range of a queue as an Arrow stream.

The first page is read before anything is answered, so that what is wrong with the wish is told as ever. From then on
one page is sent while the next one is built, and no further: a slow reader costs two pages of memory. Whatever fails in
the middle cuts the connection before the end mark; a reader never takes a part for the whole.
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
# A piece is copied and handed to the system in the loop's thread: a tenth of a millisecond.
_PIECE = 256 << 10
_PATIENCE = 3.0
_END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class BulkReadRequest(NamedTuple):
    """Messages of a queue in [offset, end), as these columns."""

    topic: str
    queue: str
    offset: int
    end: int
    columns: Sequence[str]


class BulkReads:
    """Opens streams, so many at once."""

    def __init__(self, log: MessageLog, max_concurrent: int) -> None:
        self._log = log
        self._slots = asyncio.Semaphore(max_concurrent)
        self._most = max_concurrent

    async def open(self, request: BulkReadRequest) -> "ArrowStream":
        """Wait for a slot and read the first page; Overloaded if none becomes free soon."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._slots.acquire()
        except TimeoutError:
            raise Overloaded(f"{self._most} bulk reads are being served: try again", retry_after=1) from None
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
        """End the page that is being built, and free the slot."""
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
        """Make pieces of a page and have the next one built; after an empty one comes the end."""
        if not page:
            self._pieces.append(_END_MARK)
            self._next_page = None
            return
        self._pieces.extend(page[start : start + _PIECE] for start in range(0, len(page), _PIECE))
        self._next_page = asyncio.create_task(self._page())

    async def _page(self) -> memoryview:
        request = self._request
        rows = min(request.end - self._offset, _PAGE_ROWS)
        if rows <= 0:
            return memoryview(b"")
        # Always with offsets: a message may be gone from the middle, and then rows do not tell where a page ended.
        names = dict.fromkeys((*request.columns, "offset"))
        page = await self._log.read_columns(request.topic, request.queue, self._offset, rows, _PAGE_BYTES, list(names))
        if page.num_rows:
            self._offset = page.column("offset")[-1].as_py() + 1
            page = page.select(list(request.columns))
        # Dictionaries and the like would need more than the batch; our columns have none.
        return memoryview(await asyncio.to_thread(page.serialize) if page.num_rows else b"")
