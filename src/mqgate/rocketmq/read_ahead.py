"""A range of a queue as pages in order, while the next ones are under way."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from mqgate.rocketmq.paging import Page, Paging

__all__ = ["pages"]

_Page = TypeVar("_Page", bound=Page)


async def pages(paging: Paging[_Page], pull: Callable[[int, int], Awaitable[_Page]]) -> AsyncGenerator[_Page, None]:
    """All pages of a range. `pull` gives consecutive messages from an offset on, none where the range ends.

    Close it (`contextlib.aclosing`) if it is left early: pulls are under way.
    """
    came, may_ask = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        # One task for many pulls: a page is too little to make a task for.
        try:
            while not paging.is_over:
                ask = paging.ask()
                if ask is None:
                    may_ask.clear()
                    await may_ask.wait()
                    continue
                paging.answer(ask, await pull(ask.offset, ask.max_count))
                came.set()
        finally:
            came.set()

    workers = [asyncio.create_task(work()) for _ in range(paging.ahead)]
    try:
        while not paging.is_over:
            await came.wait()
            came.clear()
            for worker in workers:
                if worker.done():
                    # It ends before the range does only by an error.
                    worker.result()
            for page in paging.take():
                yield page
            may_ask.set()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
