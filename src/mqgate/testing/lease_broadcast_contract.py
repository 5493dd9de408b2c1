"""Lease store contract: broadcast groups, in which every client has its own lease state."""

from typing import ClassVar

import pytest

from mqgate.core.entries import Mode, RateLimit
from mqgate.core.errors import TooManyClients
from mqgate.core.lease import ReceiveState, SettlementOutcome
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import OTHER, QUEUE, ack, ask, committed, granted, nack, opened, positions
from mqgate.testing.samples import a_group, queues


class BroadcastContract:
    max_clients: ClassVar[int] = 1_000

    async def test_clients_do_not_affect_each_other(self, store: LeaseStore) -> None:
        """Invariant 14: leases, acks, nacks and seeks of one client must be invisible to the others."""
        group = a_group(mode=Mode.BROADCAST)
        for client in ("ada", "ben"):
            await opened(store, group, queues(9), client=client)
        bens = await granted(store, group, client="ben", max_count=2)
        before = await positions(store, group, "ben")

        adas = await granted(store, group, client="ada", max_count=4)
        await ack(store, group, adas.lease)
        await nack(store, group, (await granted(store, group, client="ada")).lease)
        await store.seek(group, "ada", {QUEUE: 9}, is_dry_run=False)

        assert adas.lease.start == 0
        assert await positions(store, group, "ben") == before
        assert await ack(store, group, bens.lease) is SettlementOutcome.APPLIED
        assert await committed(store, group, client="ada") == 9
        assert await committed(store, group, client="ben") == 2

    async def test_every_client_receives_every_message_once_in_order(self, store: LeaseStore) -> None:
        """Invariant 14."""
        group = a_group(mode=Mode.BROADCAST)
        for client in ("ada", "ben"):
            await opened(store, group, queues(7), client=client)

        seen: dict[str, list[int]] = {"ada": [], "ben": []}
        for size in (1, 3, 2, 5):
            for client, offsets in seen.items():
                for grant in (await ask(store, group, client=client, max_count=size)).grants:
                    offsets.extend(range(grant.lease.start, grant.lease.next))
                    await ack(store, group, grant.lease)

        assert seen == {"ada": list(range(7)), "ben": list(range(7))}

    async def test_a_client_is_listed_after_its_first_poll(self, store: LeaseStore) -> None:
        """The first poll finds no state and is repeated, but must be visible to operators."""
        group = a_group(mode=Mode.BROADCAST)

        unknown = await ask(store, group, client="ada", polled_by="ada")
        await opened(store, group, queues(1), client="ada")
        new_queue = await ask(store, group, client="ada", polled_by="ada", bounds=queues(1, 1))
        await opened(store, group, queues(1, 1), client="ada")
        await granted(store, group, client="ada", polled_by="ada")

        assert (unknown.state_exists, list(new_queue.unknown_queues)) == (False, [OTHER])
        assert [client.name for client in await store.clients(group.name)] == ["ada"]

    async def test_attempt_ids_of_two_clients_do_not_conflict(self, store: LeaseStore) -> None:
        """An attemptId is chosen by each client on its own."""
        group = a_group(mode=Mode.BROADCAST)
        for client in ("ada", "ben"):
            await opened(store, group, queues(9, 5), client=client)

        adas = await granted(store, group, client="ada", attempt="a1")
        bens = await granted(store, group, client="ben", attempt="a1")

        assert (adas.lease.client, bens.lease.client) == ("ada", "ben")
        assert adas.lease.queue == bens.lease.queue == QUEUE

    async def test_an_idle_client_is_deleted_exactly_after_its_ttl(self, store: LeaseStore, clock: ManualClock) -> None:
        """The state of clients that never return must not accumulate."""
        group = a_group(mode=Mode.BROADCAST)
        await opened(store, group, queues(9), client="ada")
        await granted(store, group, client="ada")

        clock.advance(group.client_ttl.total_seconds() - 0.001)
        still_there = await ask(store, group, client="ada")
        clock.advance(group.client_ttl)
        afterwards = await ask(store, group, client="ada")

        assert still_there.state_exists
        assert not afterwards.state_exists

    async def test_a_client_that_returns_after_its_ttl_starts_over(self, store: LeaseStore, clock: ManualClock) -> None:
        """Its return is a new registration, and its old receipts are gone."""
        group = a_group(mode=Mode.BROADCAST)
        await opened(store, group, queues(9), client="ada")
        old = await granted(store, group, client="ada")
        clock.advance(group.client_ttl)

        before_its_return = await ack(store, group, old.lease)
        is_new = await opened(store, group, queues(9), client="ada", starts={QUEUE: 9})
        after_its_return = await ack(store, group, old.lease)

        assert is_new
        assert (before_its_return, after_its_return) == (SettlementOutcome.GONE, SettlementOutcome.GONE)
        assert await committed(store, group, client="ada") == 9

    async def test_clients_beyond_the_limit_are_rejected(self, store: LeaseStore) -> None:
        """A client that uses a new name for every poll must not fill the store."""
        group = a_group(mode=Mode.BROADCAST)
        for number in range(self.max_clients):
            await opened(store, group, queues(9), client=f"c{number}")

        with pytest.raises(TooManyClients):
            await opened(store, group, queues(9), client="one-too-many")

        assert not (await ask(store, group, client="one-too-many")).state_exists
        assert (await ask(store, group, client="c0")).grants

    async def test_deleted_clients_do_not_count_towards_the_limit(self, store: LeaseStore, clock: ManualClock) -> None:
        """The limit applies to current clients only."""
        group = a_group(mode=Mode.BROADCAST)
        for number in range(self.max_clients):
            await opened(store, group, queues(9), client=f"c{number}")
        clock.advance(group.client_ttl)

        is_new = await opened(store, group, queues(9), client="newcomer")

        assert is_new

    async def test_all_clients_share_the_rate_limit_of_the_group(self, store: LeaseStore) -> None:
        """The limit protects the consumers of a group as a whole."""
        group = a_group(mode=Mode.BROADCAST, rate_limit=RateLimit(rate=1, burst=5))
        for client in ("ada", "ben"):
            await opened(store, group, queues(9), client=client)
        await granted(store, group, client="ada", max_count=5)

        starved = await ask(store, group, client="ben")

        assert starved.state is ReceiveState.RATE_LIMITED

    async def test_operators_see_the_leases_of_each_client(self, store: LeaseStore) -> None:
        """During an incident, operators need to know which client works on what."""
        group = a_group(mode=Mode.BROADCAST)
        await opened(store, group, queues(9, 5), client="ada")
        await opened(store, group, queues(9, 5), client="ben")
        await granted(store, group, client="ada", polled_by="ada")
        await granted(store, group, client="ada", polled_by="ada")
        await granted(store, group, client="ben", polled_by="ben")

        holds = {client.name: list(client.holds) for client in await store.clients(group.name)}

        assert holds == {"ada": [QUEUE, OTHER], "ben": [QUEUE]}

    async def test_forget_deletes_all_state_of_a_group(self, store: LeaseStore) -> None:
        """Deleting a group must delete its positions, its clients and its tokens."""
        group = a_group(mode=Mode.BROADCAST, rate_limit=RateLimit(rate=1, burst=5))
        await opened(store, group, queues(9), client="ada")
        await granted(store, group, client="ada", polled_by="ada", max_count=5)

        await store.forget(group.name)

        assert not (await ask(store, group, client="ada")).state_exists
        assert not await store.clients(group.name)
        await opened(store, group, queues(9), client="ada")
        assert (await granted(store, group, client="ada", max_count=5)).lease.next == 5
