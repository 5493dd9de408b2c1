"""Reloads of control data for requests that name an unknown entry."""

import asyncio
from datetime import timedelta

import pytest

from mqgate.control.registry.follower import RegistryFollower
from mqgate.core.errors import StorageUnavailable


class Store:
    """A source of control data: `seen` is the value of `truth` when the last reload started."""

    def __init__(self) -> None:
        self.truth = self.seen = 0
        self.reloads = 0
        self.started = asyncio.Event()
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.fault: StorageUnavailable | None = None

    async def refresh(self) -> None:
        self.reloads += 1
        found = self.truth
        self.started.set()
        await self.may_finish.wait()
        if self.fault is not None:
            raise self.fault
        self.seen = found


async def test_catch_up_waits_for_a_reload_that_started_later() -> None:
    """A reload that started earlier may have missed the change that the caller knows of."""
    store = Store()
    follower = RegistryFollower(store.refresh, spacing=timedelta(0))
    store.may_finish.clear()
    first = asyncio.create_task(follower.catch_up())
    await store.started.wait()

    store.truth = 1
    second = asyncio.create_task(follower.catch_up())
    await asyncio.sleep(0)
    store.may_finish.set()
    await first
    seen_by_first = store.seen
    await second

    assert (seen_by_first, store.seen) == (0, 1)


async def test_concurrent_calls_share_a_reload() -> None:
    """A thousand requests for missing entries cause at most two store queries."""
    store = Store()
    follower = RegistryFollower(store.refresh)

    await asyncio.gather(*(follower.catch_up() for _ in range(1_000)))

    assert store.reloads <= 2


async def test_reloads_have_a_minimum_spacing() -> None:
    """Sequential requests must not cause one store query each."""
    store = Store()
    spacing = timedelta(milliseconds=50)
    follower = RegistryFollower(store.refresh, spacing=spacing)
    loop = asyncio.get_running_loop()

    began = loop.time()
    for _ in range(5):
        await follower.catch_up()

    assert store.reloads == 5
    assert loop.time() - began >= 4 * spacing.total_seconds() * 0.99


async def test_a_failed_reload_is_reported_to_every_waiting_call() -> None:
    """Without a reload no entry can be reported as missing, and calls must not retry one by one."""
    store = Store()
    store.fault = StorageUnavailable("away")
    follower = RegistryFollower(store.refresh)

    outcomes = await asyncio.gather(*(follower.catch_up() for _ in range(100)), return_exceptions=True)

    assert all(isinstance(outcome, StorageUnavailable) for outcome in outcomes)
    assert store.reloads <= 2


async def test_a_reload_follows_a_failed_one() -> None:
    """The store may be available again."""
    store = Store()
    follower = RegistryFollower(store.refresh, spacing=timedelta(0))
    store.fault = StorageUnavailable("away")
    with pytest.raises(StorageUnavailable):
        await follower.catch_up()

    store.fault, store.truth = None, 7
    await follower.catch_up()

    assert store.seen == 7


async def test_a_cancelled_call_does_not_cancel_the_reload_of_others() -> None:
    """Clients disconnect. The next waiting call reloads itself."""
    store = Store()
    follower = RegistryFollower(store.refresh, spacing=timedelta(0))
    store.may_finish.clear()
    first = asyncio.create_task(follower.catch_up())
    second = asyncio.create_task(follower.catch_up())
    await store.started.wait()

    store.truth = 3
    first.cancel()
    await asyncio.wait((first,))
    store.may_finish.set()
    await second

    assert store.seen == 3
