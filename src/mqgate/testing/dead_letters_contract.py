"""The contract of dead-letter stores."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from mqgate.core.errors import InvalidValue
from mqgate.core.message import Message, milliseconds
from mqgate.ports.dead_letters import DeadLetter, DeadLetterStore
from mqgate.testing.clock import NOON

__all__ = ["DeadLettersContract"]

Reopen = Callable[[], Awaitable[DeadLetterStore]]


def _letter(offset: int = 0, *, group: str = "workers", client: str = "", key: str | None = None) -> DeadLetter:
    message = Message(
        f"{offset:032x}", "orders", "local:0", offset, bytes([0, 255, offset]), key, "t", {"a": "ü"}, milliseconds(NOON)
    )
    return DeadLetter(
        group=group,
        client=client,
        message=message,
        deliveries=3,
        first_at=NOON + timedelta(seconds=offset),
        last_at=NOON + timedelta(minutes=offset),
        reason=None if offset % 2 else "broken",
    )


async def _found(store: DeadLetterStore, group: str = "workers", **filters: Any) -> list[int]:
    """Return the offsets of the matching dead letters, read page by page."""
    query = {"key": None, "since": None, "until": None, "limit": 2, **filters}
    offsets: list[int] = []
    after: str | None = None
    while True:
        page, after = await store.list(group, after=after, **query)
        offsets += [message.message.offset for message in page]
        if after is None:
            return offsets


def _minute(number: int) -> datetime:
    return NOON + timedelta(minutes=number)


class DeadLettersContract:
    """Tests of a dead-letter store. An adapter provides `store` (empty) and `reopen`, which acts like a restart."""

    async def test_the_redrive_lock_of_a_group_has_one_holder(self, store: DeadLetterStore) -> None:
        """Two operators must not redrive the same dead letters. Other groups must not wait."""
        events: list[str] = []

        async def act(name: str, group: str) -> None:
            async with store.redrive_lock(group):
                events.append(f"{name} begins")
                await asyncio.sleep(0)
                events.append(f"{name} ends")

        async with store.redrive_lock("workers"):
            second = asyncio.create_task(act("second", "workers"))
            await act("another", "others")
            events.append("first ends")
        await second

        assert events == ["another begins", "another ends", "first ends", "second begins", "second ends"]

    async def test_a_dead_letter_keeps_all_fields_after_a_restart(self, store: DeadLetterStore, reopen: Reopen) -> None:
        """An operator needs the body, the origin, the deliveries and the last reason."""
        await store.record(_letter(2, client="ada", key="k"))

        found = await (await reopen()).get("workers", f"{2:032x}")

        assert found == [_letter(2, client="ada", key="k")]

    async def test_a_dead_letter_is_recorded_once(self, store: DeadLetterStore) -> None:
        """Invariant 17: several gateways may record the same exhausted message."""
        await asyncio.gather(*(store.record(_letter(1)) for _ in range(10)))

        assert await _found(store) == [1]

    async def test_a_message_has_a_dead_letter_per_group_and_client(self, store: DeadLetterStore) -> None:
        """A failure in one group must not affect another group."""
        for letter in (_letter(1), _letter(1, group="others"), _letter(1, client="ada")):
            await store.record(letter)

        assert await _found(store) == [1, 1]
        assert await _found(store, "others") == [1]
        assert {letter.client for letter in await store.get("workers", f"{1:032x}")} == {"", "ada"}

    async def test_remove_deletes_only_the_given_dead_letters(self, store: DeadLetterStore) -> None:
        """A redrive or purge for one client must not delete the dead letter of another."""
        for letter in (_letter(1), _letter(1, client="ada"), _letter(2)):
            await store.record(letter)

        await store.remove([worker for worker in await store.get("workers", f"{1:032x}") if worker.client == "ada"])

        assert await _found(store) == [1, 2]
        assert [letter.client for letter in await store.get("workers", f"{1:032x}")] == [""]

    async def test_pages_list_every_dead_letter_once_in_order(self, store: DeadLetterStore) -> None:
        """Operators must see each dead letter exactly once."""
        for offset in range(5):
            await store.record(_letter(offset))

        assert await _found(store) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("after", ["", "x", "-1", "1.1", "9" * 19, "9" * 5_000])
    async def test_an_invalid_cursor_is_rejected(self, store: DeadLetterStore, after: str) -> None:
        """Cursors come from clients, so a bad one must not be an internal error."""
        with pytest.raises(InvalidValue) as refused:
            await store.list("workers", key=None, since=None, until=None, limit=1, after=after)

        assert refused.value.members["field"] == "cursor"

    async def test_dead_letters_are_filtered_by_key_and_time(self, store: DeadLetterStore) -> None:
        """The interval includes its start and excludes its end."""
        for offset in range(6):
            await store.record(_letter(offset, key="red" if offset % 2 else "blue"))

        assert await _found(store, key="red") == [1, 3, 5]
        assert await _found(store, since=_minute(2), until=_minute(5)) == [2, 3, 4]
        assert await _found(store, key="blue", since=_minute(1), until=_minute(5)) == [2, 4]

    async def test_forget_deletes_the_dead_letters_of_one_group_only(self, store: DeadLetterStore) -> None:
        """A deleted group must leave nothing behind, and other groups must keep theirs."""
        await store.record(_letter(1))
        await store.record(_letter(1, group="others"))

        await store.forget("workers")

        assert await _found(store) == []
        assert await store.get("workers", f"{1:032x}") == []
        assert await _found(store, "others") == [1]
