"""Lease store contract, message mode: messages are granted and settled individually."""

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
    async def test_no_message_is_leased_twice_at_the_same_time(self, store: LeaseStore) -> None:
        """Invariant 5, with any number of concurrent consumers."""
        group = workers()
        await opened(store, group, queues(10, 10))

        found = await asyncio.gather(*(taken(store, group, max_count=3) for _ in range(10)))

        granted = [place for leases in found for place in places(leases)]
        assert sorted(granted) == sorted((queue, offset) for queue in (QUEUE, OTHER) for offset in range(10))

    async def test_one_receive_is_granted_messages_of_several_queues(self, store: LeaseStore) -> None:
        """A batch must be filled from all queues. Their order is not guaranteed."""
        group = workers()
        await opened(store, group, queues(2, 3))

        leases = await taken(store, group, max_count=5)

        assert sorted(places(leases)) == [(QUEUE, 0), (QUEUE, 1), (OTHER, 0), (OTHER, 1), (OTHER, 2)]

    async def test_every_grant_has_a_new_epoch_and_counts_as_a_delivery(self, store: LeaseStore) -> None:
        """An old receipt must never become current again."""
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

    async def test_committed_is_the_first_unsettled_offset(self, store: LeaseStore) -> None:
        """Acks may arrive in any order. The committed offset moves when the first gap closes."""
        group = workers()
        await opened(store, group, queues(5))
        leases = await taken(store, group, max_count=4)

        seen = []
        for lease in (leases[1], leases[3], leases[0], leases[2]):
            await ack(store, group, lease)
            seen.append(await committed(store, group))

        assert seen == [0, 0, 2, 4]
        assert (await position(store, group)).cursor == 4

    async def test_creating_existing_state_changes_nothing(self, store: LeaseStore) -> None:
        """Several gateways may create the state."""
        group = workers()
        assert await opened(store, group, queues(5))
        await ack(store, group, await one(store, group))

        assert not await opened(store, group, queues(5))

        assert await committed(store, group) == 1

    async def test_a_group_starts_at_its_start_offsets(self, store: LeaseStore) -> None:
        """`latest` and instants are resolved to offsets at registration."""
        group = workers()
        await opened(store, group, queues(5), starts={QUEUE: 3})

        assert places(await taken(store, group)) == [(QUEUE, 3), (QUEUE, 4)]

    async def test_a_new_queue_is_consumed_from_its_first_message(self, store: LeaseStore) -> None:
        """A topic may get more queues, and no message may be lost."""
        group = workers()
        await opened(store, group, queues(0))

        before = await ask(store, group, bounds=queues(0, (2, 4)))
        await opened(store, group, queues(0, (2, 4)))

        assert (before.unknown_queues, list(before.grants)) == ([OTHER], [])
        assert places(await taken(store, group)) == [(OTHER, 2), (OTHER, 3)]

    async def test_an_empty_result_is_ok_or_busy(self, store: LeaseStore) -> None:
        """A client must be able to distinguish an empty topic from one whose messages are leased."""
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
    async def test_messages_of_a_batch_are_settled_individually(self, store: LeaseStore) -> None:
        """One bad message must not hold back the others."""
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
        """Invariant 12: repeats must have no effect."""
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
    async def test_a_late_settlement_applies_until_the_message_is_granted_again(
        self, store: LeaseStore, clock: ManualClock, verb: Verb, is_noticed: bool
    ) -> None:
        """Completed work must not be repeated, whether or not the store has noticed the expiry."""
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
    async def test_a_stale_receipt_has_no_effect(self, store: LeaseStore, clock: ManualClock, verb: Verb) -> None:
        """Invariants 6 and 16: after the next grant, the previous receipt must not apply."""
        group = workers()
        await opened(store, group, queues(1))
        slow = await one(store, group)
        clock.advance(group.visibility)
        quick = await one(store, group)
        before = await position(store, group)

        assert (await settled(store, group, verb, slow, visibility=HOUR)).outcome is SettlementOutcome.LOST
        assert await position(store, group) == before
        assert await ack(store, group, quick) is SettlementOutcome.APPLIED

    async def test_a_receipt_of_another_incarnation_is_gone(self, store: LeaseStore) -> None:
        """Deleted and recreated lease state must not accept old receipts."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)
        await store.forget(group.name)
        await opened(store, group, queues(1))
        again = await one(store, group)

        assert await ack(store, group, lease) is SettlementOutcome.GONE
        assert await ack(store, group, again) is SettlementOutcome.APPLIED

    async def test_carried_acks_apply_before_the_grant(self, store: LeaseStore) -> None:
        """A worker needs one round trip, and the in-flight cap must allow the next message at once."""
        group = workers(max_in_flight=1)
        await opened(store, group, queues(2))
        lease = await one(store, group)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=lease)])

        assert [result.outcome for result in acquired.settled] == [SettlementOutcome.APPLIED]
        assert places(singles(acquired)) == [(QUEUE, 1)]

    async def test_the_state_is_ok_after_the_last_carried_ack(self, store: LeaseStore) -> None:
        """The state must be that after the acks: empty and not busy."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=lease)])

        assert (acquired.state, list(acquired.grants)) == (ReceiveState.OK, [])


class ExtendContract:
    async def test_an_extend_applies_to_one_message_of_a_batch(self, store: LeaseStore, clock: ManualClock) -> None:
        """A slow message must not hold its neighbours."""
        group = workers()
        await opened(store, group, queues(3))
        leases = await taken(store, group)
        await extend(store, group, leases[1], timedelta(minutes=5))
        clock.advance(group.visibility)

        again = await taken(store, group)

        assert places(again) == [(QUEUE, 0), (QUEUE, 2)]
        assert await ack(store, group, leases[1]) is SettlementOutcome.APPLIED

    async def test_the_receipt_stays_valid_after_extends(self, store: LeaseStore, clock: ManualClock) -> None:
        """A worker extends as often as needed and acks with the receipt it has."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)

        for _ in range(10):
            clock.advance(group.visibility - SECOND)
            assert await extend(store, group, lease, group.visibility) is SettlementOutcome.APPLIED

        assert await ack(store, group, lease) is SettlementOutcome.APPLIED

    async def test_an_extend_counts_from_now_and_returns_the_deadline(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The new deadline may be earlier than the old one."""
        group = workers(visibility=HOUR)
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(10)

        result = await settled(store, group, Verb.EXTEND, lease, visibility=5 * SECOND)
        clock.advance(5)

        assert result.leased_until == clock.now
        assert await deliveries(store, group) == [2]

    async def test_a_lease_cannot_be_extended_beyond_twelve_hours(self, store: LeaseStore, clock: ManualClock) -> None:
        """A consumer must not hold a message forever. A rejected extend changes nothing."""
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
