"""Lease store contract: what ack, nack and extend do, and what they must refuse."""

from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.lease import MAX_HOLD, MEMORY, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import (
    QUEUE,
    ack,
    ask,
    committed,
    extend,
    gave_back,
    granted,
    nack,
    opened,
    position,
    positions,
    settled,
)
from mqgate.testing.samples import a_group, queues

_MOMENT = timedelta(milliseconds=1)
_MINUTE = timedelta(minutes=1)
_VERBS = list(Verb)


class SettleContract:
    async def test_an_ack_commits_the_batch_and_frees_the_queue(self, store: LeaseStore) -> None:
        """Ack, commit, unlock are one step: the next consumer goes on where this one ended."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)

        outcome = await ack(store, group, grant.lease)

        assert outcome is SettlementOutcome.APPLIED
        following = await granted(store, group)
        assert (following.lease.start, following.delivery) == (4, 1)

    async def test_a_repeated_ack_is_a_duplicate_and_changes_nothing(self, store: LeaseStore) -> None:
        """Invariant 12: a client that did not hear the answer may ask again, any number of times."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)
        await ack(store, group, grant.lease)
        await granted(store, group, max_count=4)
        before = await positions(store, group)

        outcomes = [await ack(store, group, grant.lease) for _ in range(3)]

        assert outcomes == [SettlementOutcome.DUPLICATE] * 3
        assert await positions(store, group) == before

    async def test_a_receipt_spent_by_one_verb_is_lost_to_the_others(self, store: LeaseStore) -> None:
        """`duplicate` means done as asked; an ack must not be told so when the batch was nacked."""
        group = a_group()
        await opened(store, group, queues(9))
        acked = (await granted(store, group, max_count=4)).lease
        await ack(store, group, acked)
        nacked = (await granted(store, group, max_count=4)).lease
        await nack(store, group, nacked)

        outcomes = [
            await nack(store, group, acked),
            await extend(store, group, acked, _MINUTE),
            await ack(store, group, nacked),
            await extend(store, group, nacked, _MINUTE),
        ]

        assert outcomes == [SettlementOutcome.LOST] * 4
        assert await nack(store, group, nacked) is SettlementOutcome.DUPLICATE
        assert await committed(store, group) == 4

    async def test_how_a_lease_ended_is_told_also_after_others_and_after_a_seek(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Whoever asks late learns what became of its own lease, not of a neighbour's."""
        group = a_group()
        await opened(store, group, queues(40))
        unanswered = (await granted(store, group, max_count=4)).lease
        clock.advance(group.visibility)
        nacked = (await granted(store, group, max_count=4)).lease
        await nack(store, group, nacked)
        acked = (await granted(store, group, max_count=4)).lease
        await ack(store, group, acked)
        returned = await granted(store, group, max_count=4)
        await gave_back(store, group, returned, returned.lease.start)
        newest = (await granted(store, group, max_count=4)).lease
        leases = (unanswered, nacked, acked, returned.lease)

        acks = [await ack(store, group, lease) for lease in leases]
        nacks = [await nack(store, group, lease) for lease in leases]
        await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)
        later = [await ack(store, group, lease) for lease in (*leases, newest)]

        lost, duplicate, gone = SettlementOutcome.LOST, SettlementOutcome.DUPLICATE, SettlementOutcome.GONE
        assert acks == [lost, lost, duplicate, lost]
        assert nacks == [lost, duplicate, lost, lost]
        assert later == [gone, lost, duplicate, gone, gone]

    async def test_one_call_settles_in_its_order(self, store: LeaseStore) -> None:
        """A batch with the same receipt twice is one ack and one duplicate, not two acks."""
        group = a_group()
        await opened(store, group, queues(4, 3))
        first, second = (await granted(store, group)).lease, (await granted(store, group)).lease
        acks = [Settlement(verb=Verb.ACK, lease=lease) for lease in (first, first, second)]

        outcomes = [each.outcome for each in await store.settle(group, acks)]

        assert outcomes == [SettlementOutcome.APPLIED, SettlementOutcome.DUPLICATE, SettlementOutcome.APPLIED]

    async def test_a_partial_ack_commits_a_prefix_and_spends_the_receipt(self, store: LeaseStore) -> None:
        """Half a batch done is half a batch kept; the rest is delivered anew as a first attempt."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=6)

        outcome = await ack(store, group, grant.lease, through=2)
        rest = await granted(store, group, max_count=6)

        assert outcome is SettlementOutcome.APPLIED
        assert (rest.lease.start, rest.delivery) == (3, 1)
        assert await ack(store, group, grant.lease) is SettlementOutcome.DUPLICATE
        assert await committed(store, group) == 3

    async def test_a_nack_frees_the_queue_and_commits_nothing(self, store: LeaseStore) -> None:
        """Release: somebody else gets the same batch at once, counted as another delivery."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)

        outcome = await nack(store, group, grant.lease)
        again = await granted(store, group, max_count=4)

        assert outcome is SettlementOutcome.APPLIED
        assert (again.lease.start, again.lease.next, again.delivery) == (0, 4, 2)

    async def test_a_nack_with_a_delay_holds_the_queue_back_exactly_that_long(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Invariant 18: not granted before its time, and granted at it."""
        group = a_group(visibility=timedelta(seconds=5))
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)
        await nack(store, group, grant.lease, delay=_MINUTE)

        clock.advance(_MINUTE - _MOMENT)
        early = await ask(store, group)
        waiting = (await position(store, group)).waiting
        clock.advance(_MOMENT)
        in_time = await ask(store, group)

        assert not early.grants
        assert waiting == 4
        assert in_time.grants

    async def test_a_late_nack_carried_by_a_receive_delays_the_queue_for_that_very_receive(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Invariant 18 also where the lease had ended, and the queue would have been free without the nack."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group)
        clock.advance(group.visibility)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.NACK, lease=grant.lease, delay=_MINUTE)])

        assert [each.outcome for each in acquired.settled] == [SettlementOutcome.LATE_APPLIED]
        assert not acquired.grants
        assert acquired.next_at == clock.now + _MINUTE

    async def test_without_a_delay_a_nack_waits_for_the_groups_backoff(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The group's setting is honoured step by step, the last step repeating."""
        steps = (timedelta(seconds=2), timedelta(seconds=10))
        group = a_group(backoff=Backoff(steps=steps))
        await opened(store, group, queues(9))

        waited = []
        for _ in range(3):
            await nack(store, group, (await granted(store, group)).lease)
            began = clock.now
            while not (await ask(store, group, attempt="probe")).grants:
                clock.advance(1)
            waited.append(clock.now - began)
            probe = await granted(store, group, attempt="probe")
            await nack(store, group, probe.lease, delay=timedelta(0))
            await ack(store, group, (await granted(store, group, max_count=1)).lease)

        assert waited == [steps[0]] * 3

    async def test_the_backoff_grows_with_the_failures(self, store: LeaseStore, clock: ManualClock) -> None:
        """A batch that keeps failing is tried ever more rarely, whether nacked or left to end."""
        steps = (timedelta(seconds=2), timedelta(seconds=10))
        group = a_group(backoff=Backoff(steps=steps), visibility=timedelta(seconds=3))
        await opened(store, group, queues(9))
        await nack(store, group, (await granted(store, group)).lease)

        clock.advance(timedelta(seconds=2))
        await granted(store, group)
        clock.advance(timedelta(seconds=13) - _MOMENT)
        early = await ask(store, group)
        clock.advance(_MOMENT)
        in_time = await ask(store, group)

        assert not early.grants
        assert [grant.delivery for grant in in_time.grants] == [3]

    async def test_an_extended_lease_lasts_and_its_receipt_stays_valid(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Long work renews its lock with the receipt it has; the time counts from now."""
        group = a_group(visibility=timedelta(seconds=30))
        await opened(store, group, queues(9))
        grant = await granted(store, group)
        clock.advance(20)

        renewed = await settled(store, group, Verb.EXTEND, grant.lease, visibility=_MINUTE)
        clock.advance(_MINUTE - _MOMENT)
        contender = await ask(store, group)

        assert renewed.outcome is SettlementOutcome.APPLIED
        assert renewed.leased_until == clock.now + _MOMENT
        assert not contender.grants
        assert await extend(store, group, grant.lease, _MINUTE) is SettlementOutcome.APPLIED
        assert await ack(store, group, grant.lease) is SettlementOutcome.APPLIED

    async def test_a_lease_is_held_for_twelve_hours_in_all_at_most(self, store: LeaseStore, clock: ManualClock) -> None:
        """Renewing for ever does not keep a queue for ever; refused, the lease stays as it was."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, visibility=MAX_HOLD - _MINUTE)
        clock.advance(MAX_HOLD - 2 * _MINUTE)

        to_the_limit = await extend(store, group, grant.lease, 2 * _MINUTE)
        before = await position(store, group)
        beyond = await extend(store, group, grant.lease, 2 * _MINUTE + _MOMENT)

        assert to_the_limit is SettlementOutcome.APPLIED
        assert beyond is SettlementOutcome.INVALID
        assert await position(store, group) == before
        assert await ack(store, group, grant.lease) is SettlementOutcome.APPLIED

    @pytest.mark.parametrize("verb", _VERBS)
    async def test_what_comes_late_but_first_is_still_done(
        self, store: LeaseStore, clock: ManualClock, verb: Verb
    ) -> None:
        """Work that took too long is not thrown away while nobody else has begun it."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)
        clock.advance(group.visibility)

        answer = await settled(store, group, verb, grant.lease, visibility=_MINUTE)

        assert answer.outcome is SettlementOutcome.LATE_APPLIED
        assert await committed(store, group) == (4 if verb is Verb.ACK else 0)

    async def test_a_late_extend_locks_the_queue_again(self, store: LeaseStore, clock: ManualClock) -> None:
        """late_applied says done: the holder may rely on its renewed lock."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group)
        clock.advance(group.visibility + _MINUTE)

        await extend(store, group, grant.lease, _MINUTE)

        assert not (await ask(store, group)).grants
        assert await ack(store, group, grant.lease) is SettlementOutcome.APPLIED

    @pytest.mark.parametrize("verb", _VERBS)
    async def test_a_late_settlement_never_touches_the_next_holder(
        self, store: LeaseStore, clock: ManualClock, verb: Verb
    ) -> None:
        """Invariants 6 and 16: the slow one is told it lost, the quick one notices nothing."""
        group = a_group()
        await opened(store, group, queues(9))
        slow = await granted(store, group, max_count=4)
        clock.advance(group.visibility)
        quick = await granted(store, group, max_count=6)
        before = await positions(store, group)

        late = await settled(store, group, verb, slow.lease, visibility=_MINUTE)

        assert late.outcome is SettlementOutcome.LOST
        assert await positions(store, group) == before
        assert not (await ask(store, group)).grants
        assert await ack(store, group, quick.lease) is SettlementOutcome.APPLIED
        assert await committed(store, group) == 6

    @pytest.mark.parametrize("verb", _VERBS)
    async def test_a_late_settlement_cannot_rewind_what_another_finished(
        self, store: LeaseStore, clock: ManualClock, verb: Verb
    ) -> None:
        """Invariant 8: committed never goes back because somebody was slow."""
        group = a_group()
        await opened(store, group, queues(9))
        slow = await granted(store, group, max_count=3)
        clock.advance(group.visibility)
        quick = await granted(store, group, max_count=8)
        await ack(store, group, quick.lease)

        late = await settled(store, group, verb, slow.lease, visibility=_MINUTE)

        assert late.outcome is SettlementOutcome.LOST
        assert await committed(store, group) == 8

    @pytest.mark.parametrize("verb", _VERBS)
    async def test_a_receipt_of_forgotten_state_is_gone(self, store: LeaseStore, verb: Verb) -> None:
        """A group registered anew is another incarnation; receipts of before are inert in it."""
        group = a_group()
        await opened(store, group, queues(9))
        old = await granted(store, group, max_count=4)
        await store.forget(group.name)

        without_state = await settled(store, group, verb, old.lease, visibility=_MINUTE)
        await opened(store, group, queues(9))
        new = await granted(store, group, max_count=4)
        with_new_state = await settled(store, group, verb, old.lease, visibility=_MINUTE)

        assert without_state.outcome is SettlementOutcome.GONE
        assert with_new_state.outcome is SettlementOutcome.GONE
        assert new.lease.incarnation != old.lease.incarnation
        assert await ack(store, group, new.lease) is SettlementOutcome.APPLIED

    async def test_a_receipt_of_a_queue_never_seen_is_gone(self, store: LeaseStore) -> None:
        """A deleted queue's receipts mean nothing any more, and that is no failure of the store."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group)

        outcome = await ack(store, group, grant.lease._replace(queue="local:77"))

        assert outcome is SettlementOutcome.GONE

    async def test_a_carried_ack_is_applied_before_the_choice(self, store: LeaseStore) -> None:
        """One round trip per batch: ack the last one and get the next of the same queue."""
        group = a_group()
        await opened(store, group, queues(8))
        first = await granted(store, group, max_count=4)

        carried = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=first.lease)])

        assert [each.outcome for each in carried.settled] == [SettlementOutcome.APPLIED]
        assert [grant.lease.start for grant in carried.grants] == [4]

    async def test_a_carried_ack_that_is_refused_never_fails_the_receive(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The outcome is reported; the messages come all the same."""
        group = a_group()
        await opened(store, group, queues(8, 4))
        slow = await granted(store, group, max_count=4)
        clock.advance(group.visibility)
        await granted(store, group)

        carried = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=slow.lease)])

        assert [each.outcome for each in carried.settled] == [SettlementOutcome.LOST]
        assert len(carried.grants) == 1

    async def test_a_spent_receipt_is_remembered_for_ten_minutes(self, store: LeaseStore, clock: ManualClock) -> None:
        """A client that was cut off for minutes still learns that its ack had been done."""
        group = a_group()
        await opened(store, group, queues(40))
        grant = await granted(store, group, max_count=1)
        await ack(store, group, grant.lease)
        for _ in range(9):
            clock.advance(MEMORY / 10)
            await ack(store, group, (await granted(store, group, max_count=1)).lease)

        clock.advance(MEMORY / 10 - _MOMENT)

        assert await ack(store, group, grant.lease) is SettlementOutcome.DUPLICATE

    async def test_lag_is_ready_plus_leased_plus_waiting(self, store: LeaseStore, clock: ManualClock) -> None:
        """Invariant 4 as operators see it: every message behind the end is in exactly one state."""
        group = a_group()
        await opened(store, group, queues(9, 5, 2))
        await granted(store, group, max_count=4)
        delayed = await granted(store, group, max_count=3)
        await nack(store, group, delayed.lease, delay=_MINUTE)

        found = await positions(store, group)

        shown = [(each.lag, each.ready, each.leased, each.waiting) for each in found.values()]
        assert sorted(shown) == [(2, 2, 0, 0), (5, 2, 0, 3), (9, 5, 4, 0)]
        assert found[QUEUE].locked_until == clock.now + group.visibility
