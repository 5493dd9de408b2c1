"""Lease store contract, message mode: messages are granted singly, and each is settled on its own."""

import asyncio
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.lease import ReceiveState, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import OTHER, QUEUE, ack, ask, committed, extend, nack, opened, position, settled
from mqgate.testing.message_leasing import HOUR, SECOND, deliveries, lag, one, places, singles, taken, workers
from mqgate.testing.samples import queues


class GrantContract:
    async def test_no_message_is_granted_twice_at_once(self, store: LeaseStore) -> None:
        """Invariant 5, with as many consumers as there are: parallelism is unlimited, leases are exclusive."""
        group = workers()
        await opened(store, group, queues(10, 10))

        found = await asyncio.gather(*(taken(store, group, max_count=3) for _ in range(10)))

        granted = [place for leases in found for place in places(leases)]
        assert sorted(granted) == sorted((queue, offset) for queue in (QUEUE, OTHER) for offset in range(10))

    async def test_one_receive_takes_from_several_queues(self, store: LeaseStore) -> None:
        """A batch is filled from wherever messages are; the order of queues is no promise."""
        group = workers()
        await opened(store, group, queues(2, 3))

        leases = await taken(store, group, max_count=5)

        assert sorted(places(leases)) == [(QUEUE, 0), (QUEUE, 1), (OTHER, 0), (OTHER, 1), (OTHER, 2)]

    async def test_every_grant_is_a_new_epoch_and_a_counted_delivery(self, store: LeaseStore) -> None:
        """What a stale receipt carries is never current again."""
        group = workers()
        await opened(store, group, queues(1))
        epochs, counts = [], []

        for _ in range(3):
            (grant,) = (await ask(store, group)).grants
            epochs.append(grant.lease.epoch)
            counts.append(grant.delivery)
            await nack(store, group, grant.lease)

        assert counts == [1, 2, 3]
        assert epochs == sorted(set(epochs))

    async def test_committed_is_the_first_message_not_settled(self, store: LeaseStore) -> None:
        """Acks fill in behind; a gap holds committed, and closing it moves committed over all of them."""
        group = workers()
        await opened(store, group, queues(5))
        leases = await taken(store, group, max_count=4)

        seen = []
        for lease in (leases[1], leases[3], leases[0], leases[2]):
            await ack(store, group, lease)
            seen.append(await committed(store, group))

        assert seen == [0, 0, 2, 4]
        assert (await position(store, group)).cursor == 4

    async def test_the_state_of_a_group_is_made_once(self, store: LeaseStore) -> None:
        """Opening again moves nothing."""
        group = workers()
        assert await opened(store, group, queues(5))
        await ack(store, group, await one(store, group))

        assert not await opened(store, group, queues(5))

        assert await committed(store, group) == 1

    async def test_a_group_that_begins_later_skips_what_was_before(self, store: LeaseStore) -> None:
        """`latest`, or an instant, became offsets when the group was registered."""
        group = workers()
        await opened(store, group, queues(5), starts={QUEUE: 3})

        assert places(await taken(store, group)) == [(QUEUE, 3), (QUEUE, 4)]

    async def test_a_queue_that_comes_later_is_read_from_its_first_message(self, store: LeaseStore) -> None:
        """A topic that grows loses nothing."""
        group = workers()
        await opened(store, group, queues(0))

        before = await ask(store, group, bounds=queues(0, (2, 4)))
        await opened(store, group, queues(0, (2, 4)))

        assert (before.unknown_queues, list(before.grants)) == ([OTHER], [])
        assert places(await taken(store, group)) == [(OTHER, 2), (OTHER, 3)]

    async def test_an_empty_group_says_ok_and_a_held_one_busy(self, store: LeaseStore) -> None:
        """Why an answer is empty: nothing there, or none of it grantable now."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)

        held = await ask(store, group)
        await ack(store, group, lease)
        done = await ask(store, group)

        assert (held.state, done.state) == (ReceiveState.BUSY, ReceiveState.OK)
        assert not held.grants
        assert not done.grants


class SettleMessageContract:
    async def test_each_message_of_a_batch_is_settled_on_its_own(self, store: LeaseStore) -> None:
        """One bad message does not hold the others."""
        group = workers()
        await opened(store, group, queues(3))
        first, second, third = await taken(store, group)

        outcomes = [
            await ack(store, group, first),
            await nack(store, group, second, delay=HOUR),
            await extend(store, group, third, HOUR),
        ]

        assert outcomes == [SettlementOutcome.APPLIED] * 3
        assert await lag(store, group) == (0, 1, 1)

    async def test_a_repeated_settlement_is_a_duplicate_and_another_verb_is_lost(self, store: LeaseStore) -> None:
        """Invariant 12: any number of repeats equals one."""
        group = workers()
        await opened(store, group, queues(2))
        acked, nacked = await taken(store, group)
        await ack(store, group, acked)
        await nack(store, group, nacked, delay=HOUR)
        before = await position(store, group)

        assert await ack(store, group, acked) is SettlementOutcome.DUPLICATE
        assert await nack(store, group, acked) is SettlementOutcome.LOST
        assert await extend(store, group, acked, HOUR) is SettlementOutcome.LOST
        assert await nack(store, group, nacked) is SettlementOutcome.DUPLICATE
        assert await ack(store, group, nacked) is SettlementOutcome.LOST
        assert await extend(store, group, nacked, HOUR) is SettlementOutcome.LOST
        assert await position(store, group) == before

    @pytest.mark.parametrize("verb", list(Verb))
    @pytest.mark.parametrize("is_noticed", [False, True], ids=["unnoticed", "noticed"])
    async def test_a_late_settlement_counts_until_somebody_else_gets_the_message(
        self, store: LeaseStore, clock: ManualClock, verb: Verb, is_noticed: bool
    ) -> None:
        """The work was done; doing it again would be waste. Whether the store saw the end yet makes no difference."""
        group = workers(backoff=Backoff(steps=(HOUR,)))
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(group.visibility)
        if is_noticed:
            assert await lag(store, group) == (0, 0, 1)

        outcome = (await settled(store, group, verb, lease, visibility=HOUR, delay=HOUR)).outcome

        assert outcome is SettlementOutcome.LATE_APPLIED
        expected = {Verb.ACK: (0, 0, 0), Verb.NACK: (0, 0, 1), Verb.EXTEND: (0, 1, 0)}
        assert await lag(store, group) == expected[verb]

    @pytest.mark.parametrize("verb", list(Verb))
    async def test_a_stale_receipt_is_inert(self, store: LeaseStore, clock: ManualClock, verb: Verb) -> None:
        """Invariants 6 and 16: after the next grant nothing of the one before applies."""
        group = workers()
        await opened(store, group, queues(1))
        slow = await one(store, group)
        clock.advance(group.visibility)
        quick = await one(store, group)
        before = await position(store, group)

        assert (await settled(store, group, verb, slow, visibility=HOUR)).outcome is SettlementOutcome.LOST
        assert await position(store, group) == before
        assert await ack(store, group, quick) is SettlementOutcome.APPLIED

    async def test_a_foreign_incarnation_is_gone(self, store: LeaseStore) -> None:
        """Lease state that was dropped and made anew does not know the receipts of before."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)
        await store.forget(group.name)
        await opened(store, group, queues(1))
        again = await one(store, group)

        assert await ack(store, group, lease) is SettlementOutcome.GONE
        assert await ack(store, group, again) is SettlementOutcome.APPLIED

    async def test_carried_acks_are_applied_before_the_choice(self, store: LeaseStore) -> None:
        """One round trip per turn of a worker: a place under the cap is free at once."""
        group = workers(max_in_flight=1)
        await opened(store, group, queues(2))
        lease = await one(store, group)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=lease)])

        assert [each.outcome for each in acquired.settled] == [SettlementOutcome.APPLIED]
        assert places(singles(acquired)) == [(QUEUE, 1)]

    async def test_the_last_ack_carried_leaves_nothing_to_wait_for(self, store: LeaseStore) -> None:
        """The answer's state is that after the acks it applied: nothing there, not busy."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=lease)])

        assert (acquired.state, list(acquired.grants)) == (ReceiveState.OK, [])


class ExtendContract:
    async def test_only_the_extended_message_of_a_batch_is_held_longer(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A slow message keeps itself, not its neighbours."""
        group = workers()
        await opened(store, group, queues(3))
        leases = await taken(store, group)
        await extend(store, group, leases[1], timedelta(minutes=5))
        clock.advance(group.visibility)

        again = await taken(store, group)

        assert places(again) == [(QUEUE, 0), (QUEUE, 2)]
        assert await ack(store, group, leases[1]) is SettlementOutcome.APPLIED

    async def test_the_receipt_stays_valid_after_extends(self, store: LeaseStore, clock: ManualClock) -> None:
        """A worker extends as often as it needs, and acks with what it received."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)

        for _ in range(10):
            clock.advance(group.visibility - SECOND)
            assert await extend(store, group, lease, group.visibility) is SettlementOutcome.APPLIED

        assert await ack(store, group, lease) is SettlementOutcome.APPLIED

    async def test_extend_counts_from_now_and_says_until_when(self, store: LeaseStore, clock: ManualClock) -> None:
        """Also when that is sooner than before: a worker may give notice."""
        group = workers(visibility=HOUR)
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(10)

        answer = await settled(store, group, Verb.EXTEND, lease, visibility=5 * SECOND)
        clock.advance(5)

        assert answer.leased_until == clock.now
        assert await deliveries(store, group) == [2]

    async def test_twelve_hours_in_all_are_the_most(self, store: LeaseStore, clock: ManualClock) -> None:
        """A holder that lives for ever must not hold for ever; refused means untouched."""
        group = workers(visibility=6 * HOUR)
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(5 * HOUR)

        beyond = await settled(store, group, Verb.EXTEND, lease, visibility=7 * HOUR + timedelta(milliseconds=1))
        before = await position(store, group)
        exactly = await settled(store, group, Verb.EXTEND, lease, visibility=7 * HOUR)
        clock.advance(7 * HOUR - SECOND)
        still_held = await lag(store, group)
        clock.advance(SECOND)

        assert beyond.outcome is SettlementOutcome.INVALID
        assert beyond.error is not None
        assert before.leased == 1
        assert exactly.outcome is SettlementOutcome.APPLIED
        assert still_held == (0, 1, 0)
        assert await deliveries(store, group) == [2]
