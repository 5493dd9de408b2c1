"""Concurrent calls that share a statement: each gets its own result or error."""

import asyncio
from collections.abc import Sequence

import pytest

from mqgate.adapters.postgres.statement_batcher import StatementBatcher
from mqgate.core.errors import InvalidValue, StorageUnavailable


class Store:
    """Store that doubles numbers when it is released. 13 is invalid, and 99 makes the store unavailable."""

    def __init__(self) -> None:
        self.statements: list[list[int]] = []
        self.is_begun = asyncio.Event()
        self.is_open = asyncio.Event()
        self.batcher = StatementBatcher(self.double, asyncio.create_task)

    async def double(self, numbers: Sequence[int]) -> Sequence[int]:
        self.statements.append(list(numbers))
        self.is_begun.set()
        await self.is_open.wait()
        if 13 in numbers:
            raise InvalidValue("unlucky")
        if 99 in numbers:
            raise StorageUnavailable("gone")
        return [2 * number for number in numbers]

    def submit(self, *numbers: int) -> asyncio.Task[Sequence[int]]:
        return asyncio.create_task(self.batcher.submit(numbers))


async def begun(store: Store, *calls: Sequence[int]) -> list[asyncio.Task[Sequence[int]]]:
    """Return calls of which the first two are running and the others wait."""
    tasks = []
    for numbers in calls[:2]:
        store.is_begun.clear()
        tasks.append(store.submit(*numbers))
        await store.is_begun.wait()
    tasks += [store.submit(*numbers) for numbers in calls[2:]]
    # One iteration of the event loop: all calls are submitted.
    await asyncio.sleep(0)
    return tasks


async def test_waiting_calls_share_one_statement() -> None:
    """Many callers must not need one round trip each, and a single caller must not wait."""
    store = Store()
    tasks = await begun(store, [1], [2], [3, 4], [5], [6])

    store.is_open.set()

    assert [list(result) for result in await asyncio.gather(*tasks)] == [[2], [4], [6, 8], [10], [12]]
    assert store.statements == [[1], [2], [3, 4, 5, 6]]


async def test_an_invalid_item_fails_only_its_own_call() -> None:
    """Other callers of the same statement must not see the error."""
    store = Store()
    tasks = await begun(store, [1], [2], [3], [13], [4])

    store.is_open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert [results[2], results[4]] == [[6], [8]]
    assert isinstance(results[3], InvalidValue)


async def test_an_unavailable_store_fails_all_calls_at_once() -> None:
    """Trying every call alone would only take longer."""
    store = Store()
    tasks = await begun(store, [1], [2], [3], [99])

    store.is_open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(result) for result in results[2:]] == [StorageUnavailable] * 2
    assert len(store.statements) == 3


async def test_a_cancelled_call_does_not_affect_the_others() -> None:
    """The items of the cancelled call are still processed."""
    store = Store()
    tasks = await begun(store, [1], [2], [3], [4])

    tasks[2].cancel()
    await asyncio.wait({tasks[2]})
    store.is_open.set()

    assert [list(await tasks[index]) for index in (0, 1, 3)] == [[2], [4], [8]]
    assert store.statements[2] == [3, 4]


async def test_a_statement_has_at_most_a_thousand_items() -> None:
    """The size of a statement must be bounded. Calls are not split."""
    store = Store()
    tasks = await begun(store, [1], [2], [0] * 600, [0] * 500, [0] * 400)

    store.is_open.set()
    await asyncio.gather(*tasks)

    assert sorted(map(len, store.statements)) == [1, 1, 600, 900]


async def test_an_empty_call_runs_no_statement() -> None:
    """An empty call must not use a connection."""
    store = Store()

    assert list(await store.batcher.submit([])) == []
    assert store.statements == []


async def test_an_unexpected_error_is_raised_to_the_caller() -> None:
    """A bug must not stop the batcher: the next call works."""
    store = Store()
    store.is_open.set()

    with pytest.raises(TypeError):
        await store.batcher.submit([None])  # type: ignore[list-item]

    assert list(await store.batcher.submit([1])) == [2]
