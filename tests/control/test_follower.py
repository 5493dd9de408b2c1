"""Catching up with other gateways, for requests that miss something."""

import asyncio
from datetime import timedelta

import pytest

from mqgate.control.registry.follower import RegistryFollower
from mqgate.core.errors import StorageUnavailable


class Store:
    """Something to look at: `seen` is what `truth` was when the look was answered."""

    def __init__(self) -> None:
        self.truth = self.seen = 0
        self.looks = 0
        self.began = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.fault: StorageUnavailable | None = None

    async def refresh(self) -> None:
        self.looks += 1
        found = self.truth
        self.began.set()
        await self.may_answer.wait()
        if self.fault is not None:
            raise self.fault
        self.seen = found


async def test_whoever_asks_sees_what_was_true_when_they_asked() -> None:
    """A look that had begun before does not count: it may have missed what the caller knows of."""
    store = Store()
    follower = RegistryFollower(store.refresh, spacing=timedelta(0))
    store.may_answer.clear()
    first = asyncio.create_task(follower.catch_up())
    await store.began.wait()

    store.truth = 1
    second = asyncio.create_task(follower.catch_up())
    await asyncio.sleep(0)
    store.may_answer.set()
    await first
    seen_by_first = store.seen
    await second

    assert (seen_by_first, store.seen) == (0, 1)


async def test_those_who_come_together_share_a_look() -> None:
    """A thousand requests for what is nowhere are two questions to the store."""
    store = Store()
    follower = RegistryFollower(store.refresh)

    await asyncio.gather(*(follower.catch_up() for _ in range(1_000)))

    assert store.looks <= 2


async def test_looks_are_spaced_out() -> None:
    """One after the other they are no quicker: however many come, the store is asked a few times a second."""
    store = Store()
    spacing = timedelta(milliseconds=50)
    follower = RegistryFollower(store.refresh, spacing=spacing)
    loop = asyncio.get_running_loop()

    began = loop.time()
    for _ in range(5):
        await follower.catch_up()

    assert store.looks == 5
    assert loop.time() - began >= 4 * spacing.total_seconds() * 0.99


async def test_a_look_that_failed_is_told_to_all_who_waited_for_it() -> None:
    """Nobody can say that something is not there; and they do not wait for the store one after the other."""
    store = Store()
    store.fault = StorageUnavailable("away")
    follower = RegistryFollower(store.refresh)

    outcomes = await asyncio.gather(*(follower.catch_up() for _ in range(100)), return_exceptions=True)

    assert all(isinstance(each, StorageUnavailable) for each in outcomes)
    assert store.looks <= 2


async def test_after_a_failure_it_looks_again() -> None:
    """The store comes back."""
    store = Store()
    follower = RegistryFollower(store.refresh, spacing=timedelta(0))
    store.fault = StorageUnavailable("away")
    with pytest.raises(StorageUnavailable):
        await follower.catch_up()

    store.fault, store.truth = None, 7
    await follower.catch_up()

    assert store.seen == 7


async def test_who_leaves_in_mid_look_leaves_the_others_theirs() -> None:
    """Clients hang up; the next in line looks itself."""
    store = Store()
    follower = RegistryFollower(store.refresh, spacing=timedelta(0))
    store.may_answer.clear()
    first = asyncio.create_task(follower.catch_up())
    second = asyncio.create_task(follower.catch_up())
    await store.began.wait()

    store.truth = 3
    first.cancel()
    await asyncio.wait((first,))
    store.may_answer.set()
    await second

    assert store.seen == 3
