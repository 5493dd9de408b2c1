"""Calls that share a statement: each with its own answer, and its own fate."""

import asyncio
from collections.abc import Sequence

import pytest

from mqgate.adapters.postgres.statement_batcher import StatementBatcher
from mqgate.core.errors import InvalidValue, StorageUnavailable


class Store:
    """Doubles numbers, when it is let; 13 is a bad one, and 99 ends it."""

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

    def ask(self, *numbers: int) -> asyncio.Task[Sequence[int]]:
        return asyncio.create_task(self.batcher.submit(numbers))


async def begun(store: Store, *calls: Sequence[int]) -> list[asyncio.Task[Sequence[int]]]:
    """Calls, of which the first two are under way and the others wait."""
    tasks = []
    for numbers in calls[:2]:
        store.is_begun.clear()
        tasks.append(store.ask(*numbers))
        await store.is_begun.wait()
    tasks += [store.ask(*numbers) for numbers in calls[2:]]
    # One turn of the loop: they have asked.
    await asyncio.sleep(0)
    return tasks


async def test_what_comes_meanwhile_goes_into_one_statement() -> None:
    """The more callers, the more each journey carries; and a lone one waits for nobody."""
    store = Store()
    tasks = await begun(store, [1], [2], [3, 4], [5], [6])

    store.is_open.set()

    assert [list(each) for each in await asyncio.gather(*tasks)] == [[2], [4], [6, 8], [10], [12]]
    assert store.statements == [[1], [2], [3, 4, 5, 6]]


async def test_a_bad_item_fails_its_own_call_alone() -> None:
    """Sharing a statement is not sharing a fate."""
    store = Store()
    tasks = await begun(store, [1], [2], [3], [13], [4])

    store.is_open.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)

    assert [answers[2], answers[4]] == [[6], [8]]
    assert isinstance(answers[3], InvalidValue)


async def test_a_store_that_is_gone_is_told_to_all_at_once() -> None:
    """To ask it again for each would only take longer."""
    store = Store()
    tasks = await begun(store, [1], [2], [3], [99])

    store.is_open.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(each) for each in answers[2:]] == [StorageUnavailable] * 2
    assert len(store.statements) == 3


async def test_who_stops_waiting_spoils_nothing_for_the_others() -> None:
    """Its part is done all the same."""
    store = Store()
    tasks = await begun(store, [1], [2], [3], [4])

    tasks[2].cancel()
    await asyncio.wait({tasks[2]})
    store.is_open.set()

    assert [list(await tasks[index]) for index in (0, 1, 3)] == [[2], [4], [8]]
    assert store.statements[2] == [3, 4]


async def test_a_statement_has_an_end() -> None:
    """Whole calls, a thousand items; what does not fit goes into the next."""
    store = Store()
    tasks = await begun(store, [1], [2], [0] * 600, [0] * 500, [0] * 400)

    store.is_open.set()
    await asyncio.gather(*tasks)

    assert sorted(map(len, store.statements)) == [1, 1, 600, 900]


async def test_nothing_to_ask_asks_nothing() -> None:
    """Not even a connection."""
    store = Store()

    assert list(await store.batcher.submit([])) == []
    assert store.statements == []


async def test_a_bug_is_seen_by_whoever_asked() -> None:
    """And the next call is served."""
    store = Store()
    store.is_open.set()

    with pytest.raises(TypeError):
        await store.batcher.submit([None])  # type: ignore[list-item]

    assert list(await store.batcher.submit([1])) == [2]
