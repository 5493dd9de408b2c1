"""The contract of registry stores."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import Account, Mode, RateLimit, Team
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
    """Tests of a registry store. An adapter provides `store` (empty), `reopen`, and its ManualClock `clock`."""

    async def test_entries_survive_a_restart_unchanged(self, store: RegistryStore, reopen: Reopen) -> None:
        """Every setting must be kept, also values that differ from the default."""
        topic = a_topic(retention=timedelta(hours=1), retention_bytes=1 << 30)
        producer = a_producer(rate_limit=RateLimit(rate=1.5, burst=10))
        group = a_group(
            team="payments",
            mode=Mode.BROADCAST,
            backoff=Backoff(steps=(timedelta(seconds=1), timedelta(minutes=2))),
            rate_limit=RateLimit(rate=5, burst=7),
            is_paused=True,
            pause_reason="lunch",
        )
        key = a_key(role=None, group="workers", expires_at=NOON + timedelta(days=1), name="ci", owner="payments")
        account = Account(
            name="ada",
            role="member",
            teams=frozenset({"payments"}),
            password_hash="$h",  # noqa: S106 - no password
            is_disabled=True,
            created_at=NOON,
        )
        team = Team(name="payments", description="<b>O'Hara</b>", created_at=NOON)
        await _saved(store, topic, producer, group, key, account, team)

        snapshot = await (await reopen()).load()

        assert snapshot.topics == {"orders": topic}
        assert snapshot.producers == {"shop": producer}
        assert snapshot.groups == {"workers": group}
        assert snapshot.keys == {"k1": key}
        assert snapshot.accounts == {"ada": account}
        assert snapshot.teams == {"payments": team}
        assert snapshot.version == 6

    async def test_the_version_grows_with_every_change_only(self, store: RegistryStore) -> None:
        """Gateways reload the registry when the version changes."""
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

    async def test_a_change_based_on_an_old_version_is_rejected(self, store: RegistryStore) -> None:
        """The second of two admins must see the change of the first before deciding again."""
        await _saved(store, a_topic())
        old = await store.version()
        await _saved(store, a_topic(queues=9))

        with pytest.raises(RegistryChanged):
            await store.save(a_topic(queues=5), _act(), decided_on=old)
        with pytest.raises(RegistryChanged):
            await store.remove(a_topic(), _act(), decided_on=old)

        assert (await store.load()).topics["orders"].queues == 9
        assert len((await store.audit_entries(100, None))[0]) == 2

    async def test_of_concurrent_changes_exactly_one_succeeds(self, store: RegistryStore) -> None:
        """Comparing the version and changing the entry must be one atomic step."""
        version = await store.version()

        outcomes = await asyncio.gather(
            *(store.save(a_topic(queues=n), _act(n), decided_on=version) for n in range(1, 9)),
            return_exceptions=True,
        )

        assert [outcome for outcome in outcomes if outcome is None] == [None]
        assert len((await store.audit_entries(100, None))[0]) == 1

    async def test_the_change_lock_has_one_holder(self, store: RegistryStore) -> None:
        """Resources of an entry are created outside the store, and two concurrent changes would undo each other."""
        order: list[str] = []

        async def work(name: str) -> None:
            async with store.change_lock():
                order.append(name)
                # A concurrent holder would append its name during this write.
                await _saved(store, a_topic(name=name))
                order.append(name)

        await asyncio.gather(*(work(name) for name in ("a", "b", "c")))

        assert order == [name for name in order[::2] for _ in range(2)]
        assert len(set(order)) == 3

    async def test_the_change_lock_is_released_after_an_error_or_cancellation(self, store: RegistryStore) -> None:
        """A failed change must not block others."""
        with pytest.raises(RegistryChanged):
            async with store.change_lock():
                raise RegistryChanged("no")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), store.change_lock():
                await asyncio.Event().wait()

        async with asyncio.timeout(30), store.change_lock():
            await _saved(store, a_topic())

        assert await store.version() == 1

    async def test_entries_of_different_kinds_may_share_a_name(self, store: RegistryStore) -> None:
        """A topic and a group may have the same name."""
        await _saved(store, a_topic(name="same"), a_producer(name="same"), a_group(name="same"))

        await store.remove(a_producer(name="same"), _act(), decided_on=await store.version())

        snapshot = await store.load()
        assert ("same" in snapshot.topics, "same" in snapshot.producers, "same" in snapshot.groups) == (
            True,
            False,
            True,
        )

    async def test_pages_list_every_audit_entry_once_newest_first(self, store: RegistryStore) -> None:
        """The audit log must be complete and in order."""
        for number in range(5):
            await store.record(_act(number))

        first, more = await store.audit_entries(2, None)
        second, more_still = await store.audit_entries(2, more)
        last, end = await store.audit_entries(2, more_still)

        assert [*first, *second, *last] == [_act(number) for number in (4, 3, 2, 1, 0)]
        assert end is None

    @pytest.mark.parametrize("before", ["", "x", "-1", "1.1", "9" * 19, "9" * 5_000])
    async def test_an_invalid_cursor_is_rejected(self, store: RegistryStore, before: str) -> None:
        """Cursors come from clients, so a bad one must not be an internal error."""
        with pytest.raises(InvalidValue) as refused:
            await store.audit_entries(1, before)

        assert refused.value.members["field"] == "cursor"

    async def test_receipt_keys_survive_a_restart(self, store: RegistryStore, reopen: Reopen) -> None:
        """Receipts issued before a restart must be accepted after it."""
        before = await store.receipt_keys(_TERMS)

        after = await (await reopen()).receipt_keys(_TERMS)

        assert list(before.accepted) == [before.current]
        assert after == before

    async def test_a_new_receipt_key_is_accepted_before_it_signs(
        self, store: RegistryStore, clock: ManualClock
    ) -> None:
        """Gateways that have not loaded it yet would reject the receipts of others."""
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

    async def test_an_old_receipt_key_is_accepted_for_the_overlap(
        self, store: RegistryStore, clock: ManualClock
    ) -> None:
        """The overlap covers the longest lease."""
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

    async def test_concurrent_calls_create_one_receipt_key(self, store: RegistryStore, clock: ManualClock) -> None:
        """All gateways find a rotation due at the same time."""
        await asyncio.gather(*(store.receipt_keys(_TERMS) for _ in range(8)))
        clock.advance(_TERMS.lifetime)

        found = await asyncio.gather(*(store.receipt_keys(_TERMS) for _ in range(8)))

        assert len((await store.receipt_keys(_TERMS)).accepted) == 2
        assert all(keys == found[0] for keys in found)
