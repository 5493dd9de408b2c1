"""Waits for what only a question can tell."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again; TimeoutError if it never becomes so."""
    async with asyncio.timeout(60):
        while not await is_so():  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.01)
