"""Lease store contract, message mode: filters, and the order of keys."""

from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.lease import ReceiveState
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import QUEUE, ack, ask, committed, exhausted, nack, opened
from mqgate.testing.message_leasing import (
    HOUR,
    SECOND,
    in_turn,
    lag,
    places,
    report_pulled,
    returned,
    singles,
    workers,
)
from mqgate.testing.samples import queues


class FilterContract:
    async def test_filtered_messages_are_settled_and_add_no_lag(self, store: LeaseStore) -> None:
        """A message that does not match is done for that group."""
        group = workers(tags=frozenset("a"))
        await opened(store, group, queues(4))

        wanted = await report_pulled(store, group, await ask(store, group), {1: None, 3: None})

        assert places(wanted) == [(QUEUE, 1), (QUEUE, 3)]
        assert await lag(store, group) == (0, 2, 0)
        assert await committed(store, group) == 1
        for lease in wanted:
            await ack(store, group, lease)
        assert await committed(store, group) == 4

    async def test_a_release_does_not_rewind_the_committed_offset(self, store: LeaseStore) -> None:
        """Invariant 8: filtered messages stay settled when their neighbours are released."""
        group = workers(tags=frozenset("a"))
        await opened(store, group, queues(3))
        acquired = await ask(store, group)
        await report_pulled(store, group, acquired, {1: None, 2: None})
        assert await committed(store, group) == 1

        await returned(store, group, acquired.grants)

        assert await committed(store, group) == 1
        assert await lag(store, group) == (2, 0, 0)
        again = await ask(store, group)
        assert places(singles(again)) == [(QUEUE, 1), (QUEUE, 2)]
        assert [grant.delivery for grant in again.grants] == [1]


class OrderContract:
    async def test_a_message_waits_for_earlier_messages_of_its_key(self, store: LeaseStore) -> None:
        """Invariant 19. Other keys and messages without a key continue."""
        group = workers(is_ordered=True)
        keys = {0: "k", 1: "k", 2: None, 3: "l", 4: "k"}
        await opened(store, group, queues(5))
        acquired = await ask(store, group)
        first = await report_pulled(store, group, acquired, keys)

        nothing = await in_turn(store, group, keys)
        await ack(store, group, first[0])
        second = await in_turn(store, group, keys)

        assert [lease.start for lease in first] == [0, 2, 3]
        assert nothing == []
        assert second == [1]

    async def test_a_nack_blocks_its_key_and_not_the_queue(self, store: LeaseStore, clock: ManualClock) -> None:
        """A failing message must not stop other keys, and is redelivered in order."""
        group = workers(is_ordered=True)
        keys = {0: "k", 1: "k", 2: "l"}
        await opened(store, group, queues(2))
        (first,) = await report_pulled(store, group, await ask(store, group), keys)
        await nack(store, group, first, delay=10 * SECOND)

        meanwhile = await report_pulled(store, group, await ask(store, group, bounds=queues(3)), keys)
        clock.advance(10)
        again = await report_pulled(store, group, await ask(store, group), keys)
        await ack(store, group, again[0])

        assert places(meanwhile) == [(QUEUE, 2)]
        assert places(again) == [(QUEUE, 0)]
        assert await in_turn(store, group, keys) == [1]

    async def test_an_expired_lease_blocks_its_key(self, store: LeaseStore, clock: ManualClock) -> None:
        """An expired lease is a failed delivery."""
        group = workers(is_ordered=True, backoff=Backoff(steps=(10 * SECOND,)))
        keys = {0: "k", 1: "k"}
        await opened(store, group, queues(2))
        await in_turn(store, group, keys)
        clock.advance(group.visibility)

        blocked = await in_turn(store, group, keys)
        clock.advance(10)

        assert blocked == []
        assert await in_turn(store, group, keys) == [0]

    async def test_a_dead_letter_unblocks_its_key(self, store: LeaseStore) -> None:
        """The next message of the key must be delivered."""
        group = workers(is_ordered=True, max_attempts=1)
        keys = {0: "k", 1: "k"}
        await opened(store, group, queues(2))
        (first,) = await report_pulled(store, group, await ask(store, group), keys)
        await nack(store, group, first)
        blocked = await in_turn(store, group, keys)
        for message in await exhausted(store, group):
            await store.settle_dead(group, message)

        assert blocked == []
        assert await in_turn(store, group, keys) == [1]

    async def test_nothing_new_is_granted_while_keys_of_a_range_are_unknown(self, store: LeaseStore) -> None:
        """A concurrent receive must not get a later message of a key that is being delivered."""
        group = workers(is_ordered=True)
        keys = dict.fromkeys(range(6), "k")
        await opened(store, group, queues(6))
        acquired = await ask(store, group, max_count=3)

        meanwhile = await ask(store, group, max_count=3)
        await report_pulled(store, group, acquired, keys)

        assert not meanwhile.grants
        assert meanwhile.state is ReceiveState.BUSY
        assert await in_turn(store, group, keys, max_count=3) == []
        await ack(store, group, singles(acquired)[0])
        assert await in_turn(store, group, keys, max_count=3) == [1]

    @pytest.mark.parametrize("visibility", [SECOND, HOUR], ids=["short lease", "long lease"])
    @pytest.mark.parametrize("is_read_before", [False, True], ids=["unseen", "seen"])
    async def test_a_range_without_a_pull_report_is_granted_again_in_order(
        self, store: LeaseStore, clock: ManualClock, visibility: timedelta, is_read_before: bool
    ) -> None:
        """Its gateway crashed. Nothing may be delivered twice, out of order or counted."""
        group = workers(is_ordered=True, visibility=visibility)
        keys = {0: "k", 1: "k", 2: "l"}
        await opened(store, group, queues(3))
        await ask(store, group)
        if is_read_before:
            clock.advance(2)
            await lag(store, group)
            await ask(store, workers(is_ordered=True, is_paused=True))
        clock.advance(20)

        again = await ask(store, group)
        wanted = await report_pulled(store, group, again, keys)

        assert {grant.delivery for grant in again.grants} == {1}
        assert sorted(places(wanted)) == [(QUEUE, 0), (QUEUE, 2)]
        assert await lag(store, group) == (0, 2, 1)

    async def test_an_attempt_without_a_pull_report_may_change_its_parameters(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Its gateway crashed and its messages were released, so there is nothing to compare with."""
        group = workers(is_ordered=True)
        await opened(store, group, queues(9))
        await ask(store, group, max_count=2, attempt="a1")
        clock.advance(11)

        again = await ask(store, group, max_count=3, attempt="a1")

        assert places(singles(again)) == [(QUEUE, 0), (QUEUE, 1), (QUEUE, 2)]

    async def test_a_release_grants_a_waiting_message_once(self, store: LeaseStore) -> None:
        """A waiting message must not be stored twice when the range before it is released."""
        group = workers(is_ordered=True)
        keys = {0: "k", 1: "k", 2: "l"}
        await opened(store, group, queues(3))
        acquired = await ask(store, group)
        await report_pulled(store, group, acquired, keys)
        await returned(store, group, acquired.grants)

        first = await report_pulled(store, group, await ask(store, group, max_count=1), keys)
        await ack(store, group, first[0])
        rest = await ask(store, group)

        assert places(first) == [(QUEUE, 0)]
        assert sorted(places(singles(rest))) == [(QUEUE, 1), (QUEUE, 2)]
        assert sorted(places(await report_pulled(store, group, rest, keys))) == [(QUEUE, 1), (QUEUE, 2)]

    async def test_a_key_whose_messages_expired_is_not_blocked(self, store: LeaseStore) -> None:
        """Messages that were released and then deleted by retention must not block their key."""
        group = workers(is_ordered=True)
        keys = {0: "k", 1: "k"}
        await opened(store, group, queues(1))
        acquired = await ask(store, group)
        await report_pulled(store, group, acquired, keys)
        await returned(store, group, acquired.grants)

        assert await in_turn(store, group, keys, bounds=queues((1, 2))) == [1]
