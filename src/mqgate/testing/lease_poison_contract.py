"""Lease store contract: messages that fail repeatedly."""

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
    granted,
    nack,
    opened,
    position,
    report_short_pull,
    settled,
)
from mqgate.testing.samples import a_group, queues


class PoisonContract:
    async def test_the_second_half_of_the_attempts_delivers_single_messages(self, store: LeaseStore) -> None:
        """A bad message must not exhaust the other messages of its batch."""
        group = a_group(max_attempts=5)
        await opened(store, group, queues(9))

        sizes = []
        for _ in range(5):
            grant = await granted(store, group, max_count=4)
            sizes.append(grant.lease.next - grant.lease.start)
            await nack(store, group, grant.lease)

        assert sizes == [4, 4, 1, 1, 1]

    async def test_a_message_with_one_attempt_is_delivered_alone(self, store: LeaseStore) -> None:
        """The only attempt is also the last one, and must not exhaust other messages."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))

        grant = await granted(store, group, max_count=4)

        assert grant.lease.next == 1

    async def test_the_last_nack_exhausts_the_message_at_once(self, store: LeaseStore, clock: ManualClock) -> None:
        """The dead letter needs the deliveries, the times and the last reason."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(9))
        first_at = clock.now
        await nack(store, group, (await granted(store, group)).lease, reason="odd")
        clock.advance(7)
        last = await granted(store, group)
        clock.advance(3)

        result = await settled(store, group, Verb.NACK, last.lease, reason="broken")

        assert result.outcome is SettlementOutcome.APPLIED
        assert result.exhausted is not None
        assert (result.exhausted.lease.queue, result.exhausted.lease.start) == (QUEUE, 0)
        assert (result.exhausted.deliveries, result.exhausted.reason) == (2, "broken")
        assert (result.exhausted.first_at, result.exhausted.last_at) == (first_at, clock.now)

    async def test_the_expiry_of_the_last_lease_exhausts_the_message(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Lease expiry is a failed delivery. Both a receive and a position call must find it."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9, 5))
        await granted(store, group)
        await granted(store, group)

        held = await exhausted(store, group)
        clock.advance(group.visibility)
        seen_by_lag = await exhausted(store, group)
        seen_by_receive = (await ask(store, group)).exhausted

        assert not held
        assert {grant.lease.queue for grant in seen_by_lag} == {QUEUE, OTHER}
        assert list(seen_by_receive) == list(seen_by_lag)
        assert {message.deliveries for message in seen_by_lag} == {1}

    async def test_the_reason_of_an_expired_last_lease_is_not_an_earlier_nack(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The reason is that of the last failure, and every later call must return the same."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(1))
        await nack(store, group, (await granted(store, group)).lease, reason="odd")
        await granted(store, group)
        clock.advance(group.visibility)

        found = [*await exhausted(store, group), *await exhausted(store, group)]

        assert [message.reason for message in found] == ["the lease ended without an answer"] * 2

    async def test_an_exhausted_message_blocks_its_queue_until_it_is_settled_dead(self, store: LeaseStore) -> None:
        """The dead letter must be stored before the queue continues, or the message could be lost."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await settled(store, group, Verb.NACK, (await granted(store, group)).lease)
        assert last.exhausted is not None

        closed = await ask(store, group)
        is_settled = await store.settle_dead(group, last.exhausted)
        following = await granted(store, group)

        assert not closed.grants
        assert is_settled
        assert (following.lease.start, following.delivery) == (1, 1)

    async def test_an_exhausted_message_is_settled_dead_once(self, store: LeaseStore) -> None:
        """Two gateways may write the same dead letter, and the committed offset must move by one."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await settled(store, group, Verb.NACK, (await granted(store, group)).lease)
        assert last.exhausted is not None
        (found_by_another,) = await exhausted(store, group)

        reports = (last.exhausted, found_by_another, last.exhausted)
        is_settled = [await store.settle_dead(group, report) for report in reports]

        assert is_settled == [True, False, False]
        assert await committed(store, group) == 1

    async def test_an_exhausted_message_deleted_by_retention_is_expired(self, store: LeaseStore) -> None:
        """Every message must be counted exactly once, as a dead letter or as expired."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await settled(store, group, Verb.NACK, (await granted(store, group)).lease)
        assert last.exhausted is not None

        is_settled = [await store.settle_dead(group, last.exhausted, is_expired=True) for _ in range(2)]

        assert is_settled == [True, False]
        assert (await position(store, group)).expired == 1

    async def test_an_exhausted_message_is_reported_again_after_a_crash(self, store: LeaseStore) -> None:
        """The gateway that received it may have crashed before it stored the dead letter."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        reported = (await settled(store, group, Verb.NACK, (await granted(store, group)).lease)).exhausted

        found = [
            (await ask(store, group)).exhausted,
            await exhausted(store, group),
            (await ask(store, group)).exhausted,
        ]

        assert reported is not None
        assert [messages[0].lease for messages in found] == [reported.lease] * 3

    async def test_settling_dead_after_a_seek_changes_nothing(self, store: LeaseStore) -> None:
        """A late call must not skip a message at the new position."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        reported = (await settled(store, group, Verb.NACK, (await granted(store, group)).lease)).exhausted
        assert reported is not None
        await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)

        is_settled = await store.settle_dead(group, reported)

        assert not is_settled
        assert await committed(store, group) == 0

    async def test_receipts_of_an_exhausted_message_are_lost(self, store: LeaseStore, clock: ManualClock) -> None:
        """A late ack must not apply after the message was exhausted."""
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

    async def test_an_ack_of_the_last_attempt_applies(self, store: LeaseStore) -> None:
        """A success in the last attempt is a success."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(9))
        await nack(store, group, (await granted(store, group)).lease)
        last = await granted(store, group)

        outcome = await ack(store, group, last.lease)

        assert outcome is SettlementOutcome.APPLIED
        assert not await exhausted(store, group)
        assert (await granted(store, group)).delivery == 1

    async def test_attempts_are_counted_from_zero_after_progress(self, store: LeaseStore) -> None:
        """Attempts belong to a committed offset."""
        group = a_group(max_attempts=4)
        await opened(store, group, queues(9))
        for _ in range(3):
            await nack(store, group, (await granted(store, group)).lease)
        failing = await granted(store, group)
        await ack(store, group, failing.lease)

        following = await granted(store, group, max_count=5)

        assert (failing.delivery, failing.lease.next) == (4, 1)
        assert (following.delivery, following.lease.next) == (1, 6)

    async def test_releasing_the_last_attempt_exhausts_nothing(self, store: LeaseStore, clock: ManualClock) -> None:
        """A message that was not delivered did not fail."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))

        await report_short_pull(store, group, await granted(store, group), after=0)
        clock.advance(group.visibility)

        assert not await exhausted(store, group)
        assert (await granted(store, group)).delivery == 1

    async def test_a_carried_nack_can_exhaust_a_message(self, store: LeaseStore) -> None:
        """The caller must learn of exhausted messages however the nack arrives."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await granted(store, group)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.NACK, lease=last.lease)])

        assert {message.lease.start for message in acquired.exhausted} == {0}
        assert not acquired.grants

    @pytest.mark.parametrize("call", ["receive", "positions"])
    async def test_a_lowered_limit_counts_earlier_attempts(
        self, store: LeaseStore, clock: ManualClock, call: str
    ) -> None:
        """Invariant 17 applies with the current limit, also to messages that already exceed it."""
        group = a_group(max_attempts=5)
        await opened(store, group, queues(9, 1))
        for reason in ("odd", "bad", "worse"):
            await nack(store, group, (await granted(store, group)).lease, reason=reason)
        lowered = replace(group, max_attempts=2)

        received = await ask(store, lowered) if call == "receive" else None
        found = await exhausted(store, lowered)

        assert received is None or [grant.lease.queue for grant in received.grants] == [OTHER]
        assert received is None or list(received.exhausted) == list(found)
        assert [(grant.lease.queue, grant.lease.start) for grant in found] == [(QUEUE, 0)]
        assert [(message.deliveries, message.reason, message.last_at) for message in found] == [(3, "worse", clock.now)]
        assert await store.settle_dead(lowered, found[0])
        assert await committed(store, lowered) == 1

    async def test_a_lowered_limit_blocks_a_queue_with_on_poison_block(self, store: LeaseStore) -> None:
        """Earlier deliveries count as well. If the limit is raised again, the queue continues."""
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

    async def test_a_lowered_limit_does_not_end_a_running_lease(self, store: LeaseStore) -> None:
        """The consumer may still succeed."""
        group = a_group(max_attempts=5)
        await opened(store, group, queues(9))
        for _ in range(2):
            await nack(store, group, (await granted(store, group)).lease)
        held = await granted(store, group)
        lowered = replace(group, max_attempts=2)

        assert not (await ask(store, lowered)).exhausted
        assert not await exhausted(store, lowered)
        assert await ack(store, lowered, held.lease) is SettlementOutcome.APPLIED

    async def test_a_blocked_queue_is_visible_and_does_not_stop_others(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """With onPoison=block nothing is skipped or dead-lettered."""
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

    async def test_a_blocked_queue_continues_when_the_limit_is_raised(self, store: LeaseStore) -> None:
        """An operator who fixed the consumer lets the queue continue."""
        group = a_group(max_attempts=2, on_poison=OnPoison.BLOCK)
        await opened(store, group, queues(9))
        for _ in range(2):
            await nack(store, group, (await granted(store, group)).lease)
        assert not (await ask(store, group)).grants

        again = await granted(store, replace(group, max_attempts=3))

        assert (again.lease.start, again.delivery) == (0, 3)

    async def test_a_blocked_queue_continues_after_a_seek(self, store: LeaseStore) -> None:
        """An operator can skip the bad message."""
        group = a_group(max_attempts=1, on_poison=OnPoison.BLOCK)
        await opened(store, group, queues(9))
        await nack(store, group, (await granted(store, group)).lease)

        await store.seek(group, "", {QUEUE: 1}, is_dry_run=False)

        assert (await granted(store, group)).lease.start == 1
