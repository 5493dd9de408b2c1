"""Lease store contract: the effects of ack, nack and extend, and when they are rejected."""

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
    granted,
    nack,
    opened,
    position,
    positions,
    report_short_pull,
    settled,
)
from mqgate.testing.samples import a_group, queues

_MOMENT = timedelta(milliseconds=1)
_MINUTE = timedelta(minutes=1)
_VERBS = list(Verb)


class SettleContract:
    async def test_an_ack_commits_the_batch_and_releases_the_queue(self, store: LeaseStore) -> None:
        """Both must happen in one step, so that the next consumer continues after the batch."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)

        outcome = await ack(store, group, grant.lease)

        assert outcome is SettlementOutcome.APPLIED
        following = await granted(store, group)
        assert (following.lease.start, following.delivery) == (4, 1)

    async def test_a_repeated_ack_is_a_duplicate_and_changes_nothing(self, store: LeaseStore) -> None:
        """Invariant 12: a client that did not get the response may repeat the ack."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)
        await ack(store, group, grant.lease)
        await granted(store, group, max_count=4)
        before = await positions(store, group)

        outcomes = [await ack(store, group, grant.lease) for _ in range(3)]

        assert outcomes == [SettlementOutcome.DUPLICATE] * 3
        assert await positions(store, group) == before

    async def test_a_receipt_settled_by_one_verb_is_lost_for_the_others(self, store: LeaseStore) -> None:
        """A consumer may rely on `duplicate` only if the same verb was applied."""
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

    async def test_the_outcome_of_a_lease_is_kept_after_later_leases_and_a_seek(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A late repeat must get the outcome of its own lease."""
        group = a_group()
        await opened(store, group, queues(40))
        unsettled = (await granted(store, group, max_count=4)).lease
        clock.advance(group.visibility)
        nacked = (await granted(store, group, max_count=4)).lease
        await nack(store, group, nacked)
        acked = (await granted(store, group, max_count=4)).lease
        await ack(store, group, acked)
        returned = await granted(store, group, max_count=4)
        await report_short_pull(store, group, returned, returned.lease.start)
        newest = (await granted(store, group, max_count=4)).lease
        leases = (unsettled, nacked, acked, returned.lease)

        acks = [await ack(store, group, lease) for lease in leases]
        nacks = [await nack(store, group, lease) for lease in leases]
        await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)
        later = [await ack(store, group, lease) for lease in (*leases, newest)]

        lost, duplicate, gone = SettlementOutcome.LOST, SettlementOutcome.DUPLICATE, SettlementOutcome.GONE
        assert acks == [lost, lost, duplicate, lost]
        assert nacks == [lost, duplicate, lost, lost]
        assert later == [gone, lost, duplicate, gone, gone]

    async def test_settlements_of_one_call_apply_in_order(self, store: LeaseStore) -> None:
        """The same receipt twice in one call is one ack and one duplicate."""
        group = a_group()
        await opened(store, group, queues(4, 3))
        first, second = (await granted(store, group)).lease, (await granted(store, group)).lease
        acks = [Settlement(verb=Verb.ACK, lease=lease) for lease in (first, first, second)]

        outcomes = [result.outcome for result in await store.settle(group, acks)]

        assert outcomes == [SettlementOutcome.APPLIED, SettlementOutcome.DUPLICATE, SettlementOutcome.APPLIED]

    async def test_a_partial_ack_commits_a_prefix_and_ends_the_lease(self, store: LeaseStore) -> None:
        """The rest of the batch is delivered again as a first attempt."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=6)

        outcome = await ack(store, group, grant.lease, through=2)
        rest = await granted(store, group, max_count=6)

        assert outcome is SettlementOutcome.APPLIED
        assert (rest.lease.start, rest.delivery) == (3, 1)
        assert await ack(store, group, grant.lease) is SettlementOutcome.DUPLICATE
        assert await committed(store, group) == 3

    async def test_a_nack_releases_the_queue_and_commits_nothing(self, store: LeaseStore) -> None:
        """The same batch is delivered again at once and counts as another delivery."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)

        outcome = await nack(store, group, grant.lease)
        again = await granted(store, group, max_count=4)

        assert outcome is SettlementOutcome.APPLIED
        assert (again.lease.start, again.lease.next, again.delivery) == (0, 4, 2)

    async def test_a_nack_with_a_delay_delays_the_queue_exactly(self, store: LeaseStore, clock: ManualClock) -> None:
        """Invariant 18."""
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

    async def test_a_late_carried_nack_delays_the_queue_for_its_own_receive(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Invariant 18 must hold although the lease had expired and the queue was available."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group)
        clock.advance(group.visibility)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.NACK, lease=grant.lease, delay=_MINUTE)])

        assert [result.outcome for result in acquired.settled] == [SettlementOutcome.LATE_APPLIED]
        assert not acquired.grants
        assert acquired.next_at == clock.now + _MINUTE

    async def test_a_nack_without_a_delay_uses_the_backoff_of_the_group(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The last step of a list must repeat."""
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
        """A batch that keeps failing must be tried less often, whether it is nacked or its lease expires."""
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

    async def test_an_extended_lease_keeps_its_receipt(self, store: LeaseStore, clock: ManualClock) -> None:
        """Long work extends its lease with the receipt that it has. The time counts from now."""
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

    async def test_a_lease_cannot_be_extended_beyond_twelve_hours(self, store: LeaseStore, clock: ManualClock) -> None:
        """A consumer must not hold a queue forever. A rejected extend changes nothing."""
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
    async def test_a_settlement_after_expiry_applies_if_the_queue_was_not_granted_again(
        self, store: LeaseStore, clock: ManualClock, verb: Verb
    ) -> None:
        """Slow work must not be wasted while no other consumer has started it."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=4)
        clock.advance(group.visibility)

        result = await settled(store, group, verb, grant.lease, visibility=_MINUTE)

        assert result.outcome is SettlementOutcome.LATE_APPLIED
        assert await committed(store, group) == (4 if verb is Verb.ACK else 0)

    async def test_a_late_extend_leases_the_queue_again(self, store: LeaseStore, clock: ManualClock) -> None:
        """After `late_applied` the consumer may rely on its lease."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group)
        clock.advance(group.visibility + _MINUTE)

        await extend(store, group, grant.lease, _MINUTE)

        assert not (await ask(store, group)).grants
        assert await ack(store, group, grant.lease) is SettlementOutcome.APPLIED

    @pytest.mark.parametrize("verb", _VERBS)
    async def test_a_late_settlement_does_not_affect_the_next_lease(
        self, store: LeaseStore, clock: ManualClock, verb: Verb
    ) -> None:
        """Invariants 6 and 16."""
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
    async def test_a_late_settlement_cannot_rewind_the_committed_offset(
        self, store: LeaseStore, clock: ManualClock, verb: Verb
    ) -> None:
        """Invariant 8."""
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
    async def test_a_receipt_of_deleted_state_is_gone(self, store: LeaseStore, verb: Verb) -> None:
        """A group that is registered again has a new incarnation."""
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

    async def test_a_receipt_of_an_unknown_queue_is_gone(self, store: LeaseStore) -> None:
        """Receipts of a deleted queue must not be an error of the store."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group)

        outcome = await ack(store, group, grant.lease._replace(queue="local:77"))

        assert outcome is SettlementOutcome.GONE

    async def test_a_carried_ack_applies_before_the_grant(self, store: LeaseStore) -> None:
        """A consumer acks a batch and gets the next one of the same queue in one round trip."""
        group = a_group()
        await opened(store, group, queues(8))
        first = await granted(store, group, max_count=4)

        carried = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=first.lease)])

        assert [result.outcome for result in carried.settled] == [SettlementOutcome.APPLIED]
        assert [grant.lease.start for grant in carried.grants] == [4]

    async def test_a_rejected_carried_ack_does_not_fail_the_receive(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The outcome is reported, and messages are granted nevertheless."""
        group = a_group()
        await opened(store, group, queues(8, 4))
        slow = await granted(store, group, max_count=4)
        clock.advance(group.visibility)
        await granted(store, group)

        carried = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=slow.lease)])

        assert [result.outcome for result in carried.settled] == [SettlementOutcome.LOST]
        assert len(carried.grants) == 1

    async def test_the_outcome_of_a_receipt_is_kept_for_ten_minutes(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A client that was disconnected for minutes must still learn that its ack was applied."""
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
        """Invariant 4: every unsettled message is in exactly one state."""
        group = a_group()
        await opened(store, group, queues(9, 5, 2))
        await granted(store, group, max_count=4)
        delayed = await granted(store, group, max_count=3)
        await nack(store, group, delayed.lease, delay=_MINUTE)

        found = await positions(store, group)

        shown = [(position.lag, position.ready, position.leased, position.waiting) for position in found.values()]
        assert sorted(shown) == [(2, 2, 0, 0), (5, 2, 0, 3), (9, 5, 4, 0)]
        assert found[QUEUE].locked_until == clock.now + group.visibility
