"""Lease store contract: broadcast, where every client has a place of its own."""

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
    most_clients: ClassVar[int] = 1_000

    async def test_clients_never_affect_each_other(self, store: LeaseStore) -> None:
        """Invariant 14: locks, commits, nacks and seeks of one are invisible to the other."""
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

    async def test_a_clients_applied_batches_partition_its_log(self, store: LeaseStore) -> None:
        """Invariant 14: every message of a queue reaches every client, once, in order."""
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

    async def test_a_client_is_listed_from_its_first_poll_on(self, store: LeaseStore) -> None:
        """Although that one found no place yet, and was made again when there was one."""
        group = a_group(mode=Mode.BROADCAST)

        unknown = await ask(store, group, client="ada", polled_by="ada")
        await opened(store, group, queues(1), client="ada")
        stranger = await ask(store, group, client="ada", polled_by="ada", bounds=queues(1, 1))
        await opened(store, group, queues(1, 1), client="ada")
        await granted(store, group, client="ada", polled_by="ada")

        assert (unknown.state_exists, list(stranger.unknown_queues)) == (False, [OTHER])
        assert [client.name for client in await store.clients(group.name)] == ["ada"]

    async def test_the_same_attempt_of_two_clients_is_two_attempts(self, store: LeaseStore) -> None:
        """An attemptId is the client's own."""
        group = a_group(mode=Mode.BROADCAST)
        for client in ("ada", "ben"):
            await opened(store, group, queues(9, 5), client=client)

        adas = await granted(store, group, client="ada", attempt="a1")
        bens = await granted(store, group, client="ben", attempt="a1")

        assert (adas.lease.client, bens.lease.client) == ("ada", "ben")
        assert adas.lease.queue == bens.lease.queue == QUEUE

    async def test_an_idle_client_is_forgotten_and_not_a_moment_early(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """clientTtl: state of clients that are gone for good does not pile up."""
        group = a_group(mode=Mode.BROADCAST)
        await opened(store, group, queues(9), client="ada")
        await granted(store, group, client="ada")

        clock.advance(group.client_ttl.total_seconds() - 0.001)
        still_there = await ask(store, group, client="ada")
        clock.advance(group.client_ttl)
        afterwards = await ask(store, group, client="ada")

        assert still_there.state_exists
        assert not afterwards.state_exists

    async def test_a_client_that_comes_back_after_that_begins_anew(self, store: LeaseStore, clock: ManualClock) -> None:
        """Never a silent jump: its return is a registration, and its old receipts are gone."""
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

    async def test_more_clients_than_allowed_are_refused(self, store: LeaseStore) -> None:
        """A client that makes up a new name for every poll must not fill the store."""
        group = a_group(mode=Mode.BROADCAST)
        for number in range(self.most_clients):
            await opened(store, group, queues(9), client=f"c{number}")

        with pytest.raises(TooManyClients):
            await opened(store, group, queues(9), client="one-too-many")

        assert not (await ask(store, group, client="one-too-many")).state_exists
        assert (await ask(store, group, client="c0")).grants

    async def test_idle_clients_make_room_for_new_ones(self, store: LeaseStore, clock: ManualClock) -> None:
        """The limit counts those who are there, not those who once were."""
        group = a_group(mode=Mode.BROADCAST)
        for number in range(self.most_clients):
            await opened(store, group, queues(9), client=f"c{number}")
        clock.advance(group.client_ttl)

        is_new = await opened(store, group, queues(9), client="newcomer")

        assert is_new

    async def test_the_rate_limit_is_the_groups(self, store: LeaseStore) -> None:
        """One bucket over all clients, as over all gateways."""
        group = a_group(mode=Mode.BROADCAST, rate_limit=RateLimit(rate=1, burst=5))
        for client in ("ada", "ben"):
            await opened(store, group, queues(9), client=client)
        await granted(store, group, client="ada", max_count=5)

        starved = await ask(store, group, client="ben")

        assert starved.state is ReceiveState.RATE_LIMITED

    async def test_operators_see_what_each_client_holds(self, store: LeaseStore) -> None:
        """The client's name is its place's name here."""
        group = a_group(mode=Mode.BROADCAST)
        await opened(store, group, queues(9, 5), client="ada")
        await opened(store, group, queues(9, 5), client="ben")
        await granted(store, group, client="ada", polled_by="ada")
        await granted(store, group, client="ada", polled_by="ada")
        await granted(store, group, client="ben", polled_by="ben")

        holds = {each.name: list(each.holds) for each in await store.clients(group.name)}

        assert holds == {"ada": [QUEUE, OTHER], "ben": [QUEUE]}

    async def test_a_forgotten_group_leaves_nothing(self, store: LeaseStore) -> None:
        """Deleting a group deletes its places, its list of clients and its tokens."""
        group = a_group(mode=Mode.BROADCAST, rate_limit=RateLimit(rate=1, burst=5))
        await opened(store, group, queues(9), client="ada")
        await granted(store, group, client="ada", polled_by="ada", max_count=5)

        await store.forget(group.name)

        assert not (await ask(store, group, client="ada")).state_exists
        assert not await store.clients(group.name)
        await opened(store, group, queues(9), client="ada")
        assert (await granted(store, group, client="ada", max_count=5)).lease.next == 5
