"""What every registry store promises."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import Mode, RateLimit
from mqgate.core.errors import RegistryChanged
from mqgate.ports.registry_store import Act, Entry, RegistryStore
from mqgate.testing.clock import NOON, ManualClock
from mqgate.testing.samples import a_group, a_key, a_producer, a_topic

__all__ = ["RegistryStoreContract"]

_DAY_MS = 86_400_000
Reopen = Callable[[], Awaitable[RegistryStore]]


def _act(number: int = 0) -> Act:
    return Act(
        at=NOON + timedelta(seconds=number),
        actor="ada",
        action="create",
        subject=f"topic {number}",
        reason="because" if number % 2 else None,
        details='{"new":1}',
    )


async def _saved(store: RegistryStore, *entries: Entry) -> None:
    for number, entry in enumerate(entries):
        await store.save(entry, _act(number), decided_on=await store.version())


class RegistryStoreContract:
    """An adapter passes by providing `store`, empty, `reopen`, and `clock`, the ManualClock it goes by."""

    async def test_entries_come_back_as_they_were_saved(self, store: RegistryStore, reopen: Reopen) -> None:
        """Every setting survives a restart, also those that are not the default."""
        topic = a_topic(retention=timedelta(hours=1), retention_bytes=1 << 30)
        producer = a_producer(rate_limit=RateLimit(rate=1.5, burst=10))
        group = a_group(
            mode=Mode.BROADCAST,
            backoff=Backoff(steps=(timedelta(seconds=1), timedelta(minutes=2))),
            rate_limit=RateLimit(rate=5, burst=7),
            is_paused=True,
            pause_reason="lunch",
        )
        key = a_key(role=None, group="workers", expires_at=NOON + timedelta(days=1))
        await _saved(store, topic, producer, group, key)

        snapshot = await (await reopen()).load()

        assert snapshot.topics == {"orders": topic}
        assert snapshot.producers == {"shop": producer}
        assert snapshot.groups == {"workers": group}
        assert snapshot.keys == {"k1": key}
        assert snapshot.version == 4

    async def test_the_version_grows_with_every_change_and_only_then(self, store: RegistryStore) -> None:
        """Directories are refreshed by it: a change unseen is a setting unheeded."""
        versions = [await store.version()]
        await _saved(store, a_topic())
        versions.append(await store.version())
        await _saved(store, a_topic(queues=9))
        versions.append(await store.version())
        await store.remove(a_topic(queues=9), _act(), decided_on=versions[-1])
        versions.append(await store.version())

        await store.record(_act())
        await store.load()

        assert versions == sorted(set(versions))
        assert await store.version() == versions[-1]
        assert (await store.load()).topics == {}

    async def test_a_change_decided_on_an_old_version_is_refused(self, store: RegistryStore) -> None:
        """Two admins at once: the second sees what the first did before it decides anew."""
        await _saved(store, a_topic())
        old = await store.version()
        await _saved(store, a_topic(queues=9))

        with pytest.raises(RegistryChanged):
            await store.save(a_topic(queues=5), _act(), decided_on=old)
        with pytest.raises(RegistryChanged):
            await store.remove(a_topic(), _act(), decided_on=old)

        assert (await store.load()).topics["orders"].queues == 9
        assert len((await store.acts(100, None))[0]) == 2

    async def test_of_concurrent_changes_exactly_one_wins(self, store: RegistryStore) -> None:
        """Compare and change are one step."""
        version = await store.version()

        answers = await asyncio.gather(
            *(store.save(a_topic(queues=n), _act(n), decided_on=version) for n in range(1, 9)),
            return_exceptions=True,
        )

        assert [each for each in answers if each is None] == [None]
        assert len((await store.acts(100, None))[0]) == 1

    async def test_names_of_different_kinds_do_not_clash(self, store: RegistryStore) -> None:
        """A topic and a group may share their name."""
        await _saved(store, a_topic(name="same"), a_producer(name="same"), a_group(name="same"))

        await store.remove(a_producer(name="same"), _act(), decided_on=await store.version())

        snapshot = await store.load()
        assert ("same" in snapshot.topics, "same" in snapshot.producers, "same" in snapshot.groups) == (
            True,
            False,
            True,
        )

    async def test_acts_come_newest_first_page_by_page(self, store: RegistryStore) -> None:
        """Who did what: complete, in order, nothing twice."""
        for number in range(5):
            await store.record(_act(number))

        first, more = await store.acts(2, None)
        second, more_still = await store.acts(2, more)
        last, end = await store.acts(2, more_still)

        assert [*first, *second, *last] == [_act(number) for number in (4, 3, 2, 1, 0)]
        assert end is None

    async def test_receipt_keys_survive_a_restart(self, store: RegistryStore, reopen: Reopen) -> None:
        """A receipt handed out before a restart is accepted after it."""
        before = await store.receipt_keys(overlap_ms=_DAY_MS, lifetime_ms=30 * _DAY_MS)

        after = await (await reopen()).receipt_keys(overlap_ms=_DAY_MS, lifetime_ms=30 * _DAY_MS)

        assert len(before) == 1
        assert after == before

    async def test_an_old_receipt_key_is_replaced_and_accepted_for_the_overlap(
        self, store: RegistryStore, clock: ManualClock
    ) -> None:
        """Rotation without a gap: the longest lease is covered by the overlap."""
        first = await store.receipt_keys(overlap_ms=_DAY_MS, lifetime_ms=30 * _DAY_MS)

        clock.advance(timedelta(days=30))
        both = await store.receipt_keys(overlap_ms=_DAY_MS, lifetime_ms=30 * _DAY_MS)
        clock.advance(timedelta(days=1))
        second = await store.receipt_keys(overlap_ms=_DAY_MS, lifetime_ms=30 * _DAY_MS)

        assert len(both) == 2
        assert both[max(both)] not in first.values()
        assert second == {max(both): both[max(both)]}
