"""A service's own task."""

import asyncio

import pytest

from mqgate.background import Background


async def test_a_task_that_swallows_its_cancellation_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Python 3.12 a wait_for inside a library may lose a cancellation: a gateway must stop nevertheless."""
    monkeypatch.setattr("mqgate.background._CANCEL_INTERVAL", 0.01)
    begun = asyncio.Event()
    forgotten = 0

    async def work() -> None:
        nonlocal forgotten
        begun.set()
        while forgotten < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                forgotten += 1
        await asyncio.Event().wait()

    background = Background(work)
    background.start()
    await begun.wait()

    assert await background.stop()

    assert forgotten == 2


async def test_the_error_of_a_task_is_raised_when_it_stops() -> None:
    """Nobody else looks at it."""

    async def work() -> None:
        raise RuntimeError("broken")

    background = Background(work)
    background.start()
    await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="broken"):
        await background.stop()

    assert not await background.stop()
