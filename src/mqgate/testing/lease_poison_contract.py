"""Lease store contract: messages that fail again and again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.core.entries import OnPoison
from mqgate.core.lease import Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import (
    OTHER,
    QUEUE,
    ack,
    ask,
    committed,
    exhausted,
    extend,
    gave_back,
    granted,
    nack,
    opened,
    position,
    settled,
)
from mqgate.testing.samples import a_group, queues


class PoisonContract:
    async def test_the_second_half_of_the_attempts_deliver_singly(self, store: LeaseStore) -> None:
        """Only the culprit dies, not the batch that it happened to stand in."""
        group = a_group(max_attempts=5)
        await opened(store, group, queues(9))

        sizes = []
        for _ in range(5):
            grant = await granted(store, group, max_count=4)
            sizes.append(grant.lease.next - grant.lease.start)
            await nack(store, group, grant.lease)

        assert sizes == [4, 4, 1, 1, 1]

    async def test_a_message_with_one_attempt_is_delivered_alone(self, store: LeaseStore) -> None:
        """The only attempt is the last one: it may take nobody else with it."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))

        grant = await granted(store, group, max_count=4)

        assert grant.lease.next == 1

    async def test_the_last_nack_dooms_the_message_at_once(self, store: LeaseStore, clock: ManualClock) -> None:
        """The dead letter tells its story: how often, since when, and why at last."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(9))
        first_at = clock.now
        await nack(store, group, (await granted(store, group)).lease, reason="odd")
        clock.advance(7)
        last = await granted(store, group)
        clock.advance(3)

        answer = await settled(store, group, Verb.NACK, last.lease, reason="broken")

        assert answer.outcome is SettlementOutcome.APPLIED
        assert answer.exhausted is not None
        assert (answer.exhausted.lease.queue, answer.exhausted.lease.start) == (QUEUE, 0)
        assert (answer.exhausted.deliveries, answer.exhausted.reason) == (2, "broken")
        assert (answer.exhausted.first_at, answer.exhausted.last_at) == (first_at, clock.now)

    async def test_a_last_lease_that_ends_dooms_the_message_at_the_next_look(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Lease expiry is a failed delivery; a receive finds it, a lag call finds it too."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9, 5))
        await granted(store, group)
        await granted(store, group)

        held = await exhausted(store, group)
        clock.advance(group.visibility)
        seen_by_lag = await exhausted(store, group)
        seen_by_receive = (await ask(store, group)).exhausted

        assert not held
        assert {each.lease.queue for each in seen_by_lag} == {QUEUE, OTHER}
        assert list(seen_by_receive) == list(seen_by_lag)
        assert {each.deliveries for each in seen_by_lag} == {1}

    async def test_a_message_whose_last_lease_ended_did_not_die_of_an_earlier_nack(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The reason is the last failure's, and stays the same for whoever looks again."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(1))
        await nack(store, group, (await granted(store, group)).lease, reason="odd")
        await granted(store, group)
        clock.advance(group.visibility)

        found = [*await exhausted(store, group), *await exhausted(store, group)]

        assert [each.reason for each in found] == ["the lease ended without an answer"] * 2

    async def test_a_doomed_message_closes_its_queue_until_it_is_buried(self, store: LeaseStore) -> None:
        """First the dead letter is recorded, then the queue goes on: nothing is lost in between."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await settled(store, group, Verb.NACK, (await granted(store, group)).lease)
        assert last.exhausted is not None

        closed = await ask(store, group)
        is_buried = await store.settle_dead(group, last.exhausted)
        following = await granted(store, group)

        assert not closed.grants
        assert is_buried
        assert (following.lease.start, following.delivery) == (1, 1)

    async def test_a_message_is_buried_once(self, store: LeaseStore) -> None:
        """Two gateways may bury the same message; committed moves by one."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await settled(store, group, Verb.NACK, (await granted(store, group)).lease)
        assert last.exhausted is not None
        (found_by_another,) = await exhausted(store, group)

        buried = [await store.settle_dead(group, each) for each in (last.exhausted, found_by_another, last.exhausted)]

        assert buried == [True, False, False]
        assert await committed(store, group) == 1

    async def test_a_message_that_retention_took_before_it_could_be_kept_is_expired(self, store: LeaseStore) -> None:
        """Each message is in one place: what is no dead letter is counted as lost to retention."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await settled(store, group, Verb.NACK, (await granted(store, group)).lease)
        assert last.exhausted is not None

        buried = [await store.settle_dead(group, last.exhausted, is_expired=True) for _ in range(2)]

        assert buried == [True, False]
        assert (await position(store, group)).expired == 1

    async def test_a_burial_interrupted_by_a_crash_is_found_again(self, store: LeaseStore) -> None:
        """The gateway that was told died: the next one that looks is told the same."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        told = (await settled(store, group, Verb.NACK, (await granted(store, group)).lease)).exhausted

        found = [
            (await ask(store, group)).exhausted,
            await exhausted(store, group),
            (await ask(store, group)).exhausted,
        ]

        assert told is not None
        assert [each[0].lease for each in found] == [told.lease] * 3

    async def test_a_burial_after_a_seek_changes_nothing(self, store: LeaseStore) -> None:
        """The operator put the group elsewhere in between; a late burial must not skip a message there."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        told = (await settled(store, group, Verb.NACK, (await granted(store, group)).lease)).exhausted
        assert told is not None
        await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)

        is_buried = await store.settle_dead(group, told)

        assert not is_buried
        assert await committed(store, group) == 0

    async def test_receipts_of_a_doomed_message_are_lost(self, store: LeaseStore, clock: ManualClock) -> None:
        """Dead is final: a late ack of the last delivery comes after the decision."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await granted(store, group)
        clock.advance(group.visibility)
        await exhausted(store, group)

        outcomes = [
            await ack(store, group, last.lease),
            await nack(store, group, last.lease),
            await extend(store, group, last.lease, timedelta(minutes=1)),
        ]

        assert outcomes == [SettlementOutcome.LOST] * 3
        assert await committed(store, group) == 0

    async def test_an_ack_of_the_last_attempt_saves_the_message(self, store: LeaseStore) -> None:
        """Success at the last moment is success."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(9))
        await nack(store, group, (await granted(store, group)).lease)
        last = await granted(store, group)

        outcome = await ack(store, group, last.lease)

        assert outcome is SettlementOutcome.APPLIED
        assert not await exhausted(store, group)
        assert (await granted(store, group)).delivery == 1

    async def test_progress_starts_the_count_anew(self, store: LeaseStore) -> None:
        """Attempts belong to a committed offset: a batch that moved on is not punished for its past."""
        group = a_group(max_attempts=4)
        await opened(store, group, queues(9))
        for _ in range(3):
            await nack(store, group, (await granted(store, group)).lease)
        culprit = await granted(store, group)
        await ack(store, group, culprit.lease)

        following = await granted(store, group, max_count=5)

        assert (culprit.delivery, culprit.lease.next) == (4, 1)
        assert (following.delivery, following.lease.next) == (1, 6)

    async def test_a_hand_back_of_the_last_attempt_dooms_nobody(self, store: LeaseStore, clock: ManualClock) -> None:
        """What was never delivered did not fail."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))

        await gave_back(store, group, await granted(store, group), after=0)
        clock.advance(group.visibility)

        assert not await exhausted(store, group)
        assert (await granted(store, group)).delivery == 1

    async def test_a_carried_nack_may_doom_too(self, store: LeaseStore) -> None:
        """However a settlement arrives, its consequence is told to the caller."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await granted(store, group)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.NACK, lease=last.lease)])

        assert {each.lease.start for each in acquired.exhausted} == {0}
        assert not acquired.grants

    @pytest.mark.parametrize("look", ["receive", "positions"])
    async def test_a_lowered_limit_counts_the_attempts_of_before(
        self, store: LeaseStore, clock: ManualClock, look: str
    ) -> None:
        """Invariant 17 holds by the limit of now: who had more deliveries dies with as many as it had."""
        group = a_group(max_attempts=5)
        await opened(store, group, queues(9, 1))
        for reason in ("odd", "bad", "worse"):
            await nack(store, group, (await granted(store, group)).lease, reason=reason)
        lowered = replace(group, max_attempts=2)

        answered = await ask(store, lowered) if look == "receive" else None
        found = await exhausted(store, lowered)

        assert answered is None or [grant.lease.queue for grant in answered.grants] == [OTHER]
        assert answered is None or list(answered.exhausted) == list(found)
        assert [(each.lease.queue, each.lease.start) for each in found] == [(QUEUE, 0)]
        assert [(each.deliveries, each.reason, each.last_at) for each in found] == [(3, "worse", clock.now)]
        assert await store.settle_dead(lowered, found[0])
        assert await committed(store, lowered) == 1

    async def test_a_lowered_limit_blocks_a_queue_that_is_not_to_lose_anything(self, store: LeaseStore) -> None:
        """onPoison=block holds for deliveries of before as well; raised again, the queue goes on."""
        group = a_group(max_attempts=5, on_poison=OnPoison.BLOCK)
        await opened(store, group, queues(9))
        lowered = replace(group, max_attempts=2)
        for limits in (group, group, lowered):
            await nack(store, limits, (await granted(store, group)).lease)

        stopped = await ask(store, lowered)

        assert not stopped.grants
        assert not stopped.exhausted
        assert (await position(store, lowered)).is_blocked
        assert (await granted(store, group)).delivery == 4

    async def test_a_lowered_limit_waits_for_who_holds_the_queue(self, store: LeaseStore) -> None:
        """A consumer at work may still succeed."""
        group = a_group(max_attempts=5)
        await opened(store, group, queues(9))
        for _ in range(2):
            await nack(store, group, (await granted(store, group)).lease)
        held = await granted(store, group)
        lowered = replace(group, max_attempts=2)

        assert not (await ask(store, lowered)).exhausted
        assert not await exhausted(store, lowered)
        assert await ack(store, lowered, held.lease) is SettlementOutcome.APPLIED

    async def test_a_blocked_queue_stops_visibly_and_alone(self, store: LeaseStore, clock: ManualClock) -> None:
        """onPoison=block: nothing is skipped, nothing dies, the other queues go on."""
        group = a_group(max_attempts=1, on_poison=OnPoison.BLOCK)
        await opened(store, group, queues(9, 5))
        await nack(store, group, (await granted(store, group)).lease)
        clock.advance(group.visibility)

        following = await ask(store, group)

        assert [grant.lease.queue for grant in following.grants] == [OTHER]
        assert not following.exhausted
        assert (await position(store, group)).is_blocked
        assert not (await position(store, group, OTHER)).is_blocked
        assert await committed(store, group) == 0

    async def test_a_blocked_queue_goes_on_when_the_limit_is_raised(self, store: LeaseStore) -> None:
        """An operator who mended the consumer lets the queue go on where it stopped."""
        group = a_group(max_attempts=2, on_poison=OnPoison.BLOCK)
        await opened(store, group, queues(9))
        for _ in range(2):
            await nack(store, group, (await granted(store, group)).lease)
        assert not (await ask(store, group)).grants

        again = await granted(store, replace(group, max_attempts=3))

        assert (again.lease.start, again.delivery) == (0, 3)

    async def test_a_blocked_queue_goes_on_after_a_seek(self, store: LeaseStore) -> None:
        """Skipping the culprit by hand is the other way out."""
        group = a_group(max_attempts=1, on_poison=OnPoison.BLOCK)
        await opened(store, group, queues(9))
        await nack(store, group, (await granted(store, group)).lease)

        await store.seek(group, "", {QUEUE: 1}, is_dry_run=False)

        assert (await granted(store, group)).lease.start == 1
