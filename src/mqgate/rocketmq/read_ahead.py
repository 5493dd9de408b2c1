"""Reads a range of a queue as pages in order, with concurrent pulls of the next pages."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from mqgate.rocketmq.paging import Page, Paging

__all__ = ["pages"]

_Page = TypeVar("_Page", bound=Page)


async def pages(paging: Paging[_Page], pull: Callable[[int, int], Awaitable[_Page]]) -> AsyncGenerator[_Page, None]:
    """Yield all pages of a range. `pull` returns consecutive messages from an offset, or none where the range ends.

    A caller that stops early must close the generator (`contextlib.aclosing`), because pulls are running.
    """
    arrived, may_pull = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        # One task per pull would be slower.
        try:
            while not paging.is_over:
                pull_range = paging.next_pull()
                if pull_range is None:
                    may_pull.clear()
                    await may_pull.wait()
                    continue
                paging.add_page(pull_range, await pull(pull_range.offset, pull_range.size))
                arrived.set()
        finally:
            arrived.set()

    workers = [asyncio.create_task(work()) for _ in range(paging.ahead)]
    try:
        while not paging.is_over:
            await arrived.wait()
            arrived.clear()
            for worker in workers:
                if worker.done():
                    # Before the end of the range a worker is done only after an error.
                    worker.result()
            for page in paging.take():
                yield page
            may_pull.set()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
