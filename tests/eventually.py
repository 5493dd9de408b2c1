"""Waits for a condition that no event reports."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Check repeatedly. Raise TimeoutError if the condition does not become true."""
    async with asyncio.timeout(60):
        while not await is_so():  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.01)
