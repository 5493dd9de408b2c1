"""What every registry store promises."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import Mode, RateLimit
from mqgate.core.errors import InvalidValue, RegistryChanged
from mqgate.core.receipt import KeyRotationPolicy
from mqgate.ports.registry_store import AuditEntry, Entry, RegistryStore
from mqgate.testing.clock import NOON, ManualClock
from mqgate.testing.samples import a_group, a_key, a_producer, a_topic

__all__ = ["RegistryStoreContract"]

_TERMS = KeyRotationPolicy()
_MOMENT = timedelta(milliseconds=1)
Reopen = Callable[[], Awaitable[RegistryStore]]


def _act(number: int = 0) -> AuditEntry:
    return AuditEntry(
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
        assert len((await store.audit_entries(100, None))[0]) == 2

    async def test_of_concurrent_changes_exactly_one_wins(self, store: RegistryStore) -> None:
        """Compare and change are one step."""
        version = await store.version()

        answers = await asyncio.gather(
            *(store.save(a_topic(queues=n), _act(n), decided_on=version) for n in range(1, 9)),
            return_exceptions=True,
        )

        assert [each for each in answers if each is None] == [None]
        assert len((await store.audit_entries(100, None))[0]) == 1

    async def test_one_at_a_time_has_its_turn(self, store: RegistryStore) -> None:
        """What belongs to an entry is made and dropped outside of the store: two at it would undo each other."""
        order: list[str] = []

        async def work(name: str) -> None:
            async with store.change_lock():
                order.append(name)
                # Whoever could come in between has the time to.
                await _saved(store, a_topic(name=name))
                order.append(name)

        await asyncio.gather(*(work(name) for name in ("a", "b", "c")))

        assert order == [name for name in order[::2] for _ in range(2)]
        assert len(set(order)) == 3

    async def test_a_turn_ends_however_it_ends(self, store: RegistryStore) -> None:
        """A change that failed, or whose client hung up, keeps nobody else from theirs."""
        with pytest.raises(RegistryChanged):
            async with store.change_lock():
                raise RegistryChanged("no")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), store.change_lock():
                await asyncio.Event().wait()

        async with asyncio.timeout(30), store.change_lock():
            await _saved(store, a_topic())

        assert await store.version() == 1

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

        first, more = await store.audit_entries(2, None)
        second, more_still = await store.audit_entries(2, more)
        last, end = await store.audit_entries(2, more_still)

        assert [*first, *second, *last] == [_act(number) for number in (4, 3, 2, 1, 0)]
        assert end is None

    @pytest.mark.parametrize("before", ["", "x", "-1", "1.1", "9" * 19, "9" * 5_000])
    async def test_a_place_that_no_page_of_acts_named_is_refused(self, store: RegistryStore, before: str) -> None:
        """Callers send it: a number beyond the column is no fault of ours."""
        with pytest.raises(InvalidValue) as refused:
            await store.audit_entries(1, before)

        assert refused.value.members["field"] == "cursor"

    async def test_receipt_keys_survive_a_restart(self, store: RegistryStore, reopen: Reopen) -> None:
        """A receipt handed out before a restart is accepted after it."""
        before = await store.receipt_keys(_TERMS)

        after = await (await reopen()).receipt_keys(_TERMS)

        assert list(before.accepted) == [before.current]
        assert after == before

    async def test_a_new_receipt_key_is_accepted_before_anybody_signs_with_it(
        self, store: RegistryStore, clock: ManualClock
    ) -> None:
        """Gateways that have not heard of it yet would refuse what others sign."""
        first = await store.receipt_keys(_TERMS)

        clock.advance(_TERMS.lifetime)
        made = await store.receipt_keys(_TERMS)
        clock.advance(_TERMS.ahead - _MOMENT)
        just_before = await store.receipt_keys(_TERMS)
        clock.advance(_MOMENT)
        settled = await store.receipt_keys(_TERMS)

        assert (made.current, just_before) == (first.current, made)
        assert settled.accepted == made.accepted
        assert settled.accepted.keys() == {first.current, settled.current}
        assert settled.accepted[settled.current] != first.accepted[first.current]

    async def test_an_old_receipt_key_is_accepted_for_the_overlap_after_it_last_signed(
        self, store: RegistryStore, clock: ManualClock
    ) -> None:
        """Rotation without a gap: the longest lease is covered by the overlap."""
        await store.receipt_keys(_TERMS)
        clock.advance(_TERMS.lifetime)
        both = await store.receipt_keys(_TERMS)

        clock.advance(_TERMS.ahead + _TERMS.overlap - _MOMENT)
        just_before = await store.receipt_keys(_TERMS)
        clock.advance(_MOMENT)
        last = await store.receipt_keys(_TERMS)

        assert just_before.accepted == both.accepted
        assert last.accepted == {last.current: both.accepted[last.current]}
        assert last.current == just_before.current

    async def test_receipt_keys_are_made_one_at_a_time(self, store: RegistryStore, clock: ManualClock) -> None:
        """All gateways find the same moment come."""
        await asyncio.gather(*(store.receipt_keys(_TERMS) for _ in range(8)))
        clock.advance(_TERMS.lifetime)

        found = await asyncio.gather(*(store.receipt_keys(_TERMS) for _ in range(8)))

        assert len((await store.receipt_keys(_TERMS)).accepted) == 2
        assert all(each == found[0] for each in found)
