"""Lease store contract: changes of the log, and operations: seek, pause, rate limit."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.core.entries import Mode, RateLimit
from mqgate.core.lease import OffsetRange, QueueBounds, ReceiveState, SeekResult, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import (
    BOUNDS_TRUSTED,
    OTHER,
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
)
from mqgate.testing.samples import a_group, queues

_MINUTE = timedelta(minutes=1)


class ChangingLogContract:
    async def test_messages_deleted_by_retention_are_skipped_and_reported_once(self, store: LeaseStore) -> None:
        """A group must learn how many messages it lost."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, max_count=2)
        await ack(store, group, first.lease)

        skipped = await ask(store, group, max_count=1, bounds=queues((7, 9)))
        await ack(store, group, skipped.grants[0].lease)
        following = await ask(store, group)

        assert (skipped.expired, skipped.grants[0].lease.start) == (5, 7)
        assert (following.expired, following.grants[0].lease.start) == (0, 8)
        assert (await position(store, group)).expired == 5

    async def test_failures_of_a_deleted_message_do_not_count_for_the_next(self, store: LeaseStore) -> None:
        """The attempts belong to the deleted message."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(9))
        await nack(store, group, (await granted(store, group)).lease)

        following = await granted(store, group, max_count=2, bounds=queues((3, 9)))

        assert (following.lease.start, following.delivery) == (3, 1)

    async def test_a_queue_emptied_by_retention_is_not_granted(self, store: LeaseStore) -> None:
        """Only min <= committed < max is a backlog."""
        group = a_group()
        await opened(store, group, queues(9))

        acquired = await ask(store, group, bounds=queues((9, 9)))

        assert not acquired.grants
        assert (await position(store, group)).lag == 0

    async def test_an_emptied_queue_is_reported_although_it_has_no_new_message(self, store: LeaseStore) -> None:
        """The next receive must report the loss, once, and not only after the next publish."""
        group = a_group()
        await opened(store, group, queues(9, 4))

        acquired = [await ask(store, group, bounds=queues((9, 9), (4, 4))) for _ in range(2)]

        places = await positions(store, group)
        assert [list(result.lost) for result in acquired] == [[OffsetRange(QUEUE, 0, 9), OffsetRange(OTHER, 0, 4)], []]
        assert not any(result.grants for result in acquired)
        assert [(places[queue].committed, places[queue].expired) for queue in (QUEUE, OTHER)] == [(9, 9), (4, 4)]

    async def test_a_queue_emptied_while_leased_is_reported_after_the_lease_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Until then its consumer may still ack."""
        group = a_group()
        await opened(store, group, queues(3))
        held = await granted(store, group)

        before = await ask(store, group, bounds=queues((3, 3)))
        clock.advance(group.visibility)
        after = await ask(store, group)

        assert (before.expired, after.expired) == (0, 3)
        assert await ack(store, group, held.lease) is SettlementOutcome.GONE

    async def test_a_receipt_of_a_deleted_message_is_gone(self, store: LeaseStore, clock: ManualClock) -> None:
        """No other consumer had the message, so it is not lost."""
        group = a_group()
        await opened(store, group, queues(2))
        first = await granted(store, group)
        clock.advance(group.visibility)

        following = await granted(store, group, bounds=queues((2, 3)))

        assert following.lease.start == 2
        assert await ack(store, group, first.lease) is SettlementOutcome.GONE
        assert await nack(store, group, first.lease) is SettlementOutcome.GONE
        assert await ack(store, group, following.lease) is SettlementOutcome.APPLIED

    async def test_a_truncated_queue_restarts_at_its_first_offset(self, store: LeaseStore, clock: ManualClock) -> None:
        """Starting at the end would skip messages that the broker stored since."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group)
        await ack(store, group, first.lease)
        clock.advance(BOUNDS_TRUSTED)

        acquired = await ask(store, group, bounds=queues((1, 4)))

        assert acquired.rewound == 8
        assert [(grant.lease.start, grant.lease.next) for grant in acquired.grants] == [(1, 4)]

    async def test_receipts_from_before_a_rewind_are_gone(self, store: LeaseStore, clock: ManualClock) -> None:
        """After a rewind the offsets belong to other messages."""
        group = a_group()
        await opened(store, group, queues(9))
        await ack(store, group, (await granted(store, group, max_count=8)).lease)
        old = await granted(store, group)
        clock.advance(group.visibility)
        new = await granted(store, group, bounds=queues(4))

        outcomes = [
            await ack(store, group, old.lease),
            await nack(store, group, old.lease),
            await extend(store, group, old.lease, _MINUTE),
        ]

        assert outcomes == [SettlementOutcome.GONE] * 3
        assert await ack(store, group, new.lease) is SettlementOutcome.APPLIED
        assert await committed(store, group) == 4

    async def test_a_new_queue_starts_at_its_first_offset(self, store: LeaseStore) -> None:
        """Messages published before the group learned of the queue must not be lost."""
        group = a_group(start="latest")
        await opened(store, group, queues(9), starts={QUEUE: 9})

        before = await ask(store, group, bounds={OTHER: QueueBounds(2, 5)})
        is_new = await opened(
            store, group, {OTHER: QueueBounds(2, 5), QUEUE: QueueBounds(0, 9)}, starts={OTHER: 2, QUEUE: 0}
        )
        grant = await granted(store, group)

        assert (before.unknown_queues, list(before.grants)) == ([OTHER], [])
        assert not is_new
        assert (grant.lease.queue, grant.lease.start, grant.lease.next) == (OTHER, 2, 5)

    async def test_the_committed_offset_of_a_missing_queue_is_kept(self, store: LeaseStore) -> None:
        """A broker may be unavailable for a while, and the group continues at its position."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        grant = await granted(store, group, max_count=4)
        await ack(store, group, grant.lease)
        await ask(store, group, bounds={OTHER: QueueBounds(0, 6)})

        back = await granted(store, group, bounds={QUEUE: QueueBounds(0, 12)})

        assert (back.lease.queue, back.lease.start) == (QUEUE, 4)


class SeekContract:
    async def test_a_seek_moves_committed_and_returns_old_and_new_offsets(self, store: LeaseStore) -> None:
        """Operators must see the effect on each queue. Other queues must not move."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        await ack(store, group, (await granted(store, group, max_count=4)).lease)

        moved = await store.seek(group, "", {QUEUE: 1}, is_dry_run=False)

        assert moved == [SeekResult(QUEUE, 4, 1)]
        assert (await committed(store, group), await committed(store, group, OTHER)) == (1, 0)
        assert (await granted(store, group)).lease.start == 1

    async def test_a_seek_applies_to_queues_that_are_new_to_the_state(self, store: LeaseStore) -> None:
        """Otherwise a new queue would start at its first offset."""
        group = a_group()
        await opened(store, group, queues(9))

        await store.seek(group, "", {QUEUE: 9, OTHER: 5}, bounds=queues(9, 5), is_dry_run=False)

        assert (await committed(store, group), await committed(store, group, OTHER)) == (9, 5)
        assert not (await ask(store, group, bounds=queues(9, 5))).grants

    async def test_a_seek_revokes_all_earlier_leases(self, store: LeaseStore) -> None:
        """Old receipts are gone, expired or not, and the queue is available at once."""
        group = a_group()
        await opened(store, group, queues(9))
        released = await granted(store, group, max_count=4)
        await nack(store, group, released.lease)
        held = await granted(store, group, max_count=4)
        await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)

        outcomes = [
            await ack(store, group, held.lease),
            await nack(store, group, held.lease),
            await extend(store, group, held.lease, _MINUTE),
            await ack(store, group, released.lease._replace(epoch=held.lease.epoch)),
        ]
        following = await granted(store, group, max_count=2)

        assert outcomes == [SettlementOutcome.GONE] * 4
        assert (following.lease.start, following.delivery) == (0, 1)
        assert following.lease.epoch > held.lease.epoch
        assert await ack(store, group, following.lease) is SettlementOutcome.APPLIED

    async def test_an_attempt_from_before_a_seek_is_a_new_receive(self, store: LeaseStore) -> None:
        """A revoked lease must not return through its attemptId."""
        group = a_group()
        await opened(store, group, queues(9))
        before = await granted(store, group, attempt="a1", max_count=2)
        await store.seek(group, "", {QUEUE: 5}, is_dry_run=False)

        after = await granted(store, group, attempt="a1", max_count=2)

        assert after.lease.start == 5
        assert after.lease.epoch > before.lease.epoch

    async def test_a_dry_run_returns_the_same_result_and_changes_nothing(self, store: LeaseStore) -> None:
        """Operators check a seek first, and running leases must stay valid."""
        group = a_group()
        await opened(store, group, queues(9))
        held = await granted(store, group, max_count=4)
        before = await positions(store, group)

        moved = await store.seek(group, "", {QUEUE: 7}, is_dry_run=True)

        assert moved == [SeekResult(QUEUE, 0, 7)]
        assert await positions(store, group) == before
        assert await ack(store, group, held.lease) is SettlementOutcome.APPLIED

    async def test_missing_state_is_returned_as_none(self, store: LeaseStore) -> None:
        """The caller must be able to distinguish missing state from an empty result."""
        group = a_group()

        assert await store.seek(group, "", {QUEUE: 7}, is_dry_run=False) is None
        assert await store.positions(group, "", {}) is None


class CommittedContract:
    @pytest.mark.parametrize("mode", [Mode.QUEUE, Mode.MESSAGE])
    async def test_committed_offsets_are_read_without_a_state_change(self, store: LeaseStore, mode: Mode) -> None:
        """The offset mirror reads them every few seconds, so it must be cheap."""
        group = a_group(mode=mode)
        before = await store.committed(group.name)
        await opened(store, group, queues(9, 5), starts={QUEUE: 0, OTHER: 2})
        grant = await granted(store, group, max_count=4, closed=[OTHER])
        await ack(store, group, grant.lease, through=0)

        assert before is None
        assert await store.committed(group.name) == {QUEUE: 1, OTHER: 2}


class PauseContract:
    async def test_a_paused_group_is_granted_nothing(self, store: LeaseStore) -> None:
        """The state of the result says why it is empty."""
        group = a_group()
        await opened(store, group, queues(9))

        paused = await ask(store, replace(group, is_paused=True))
        resumed = await ask(store, group)

        assert not paused.grants
        assert paused.state is ReceiveState.PAUSED
        assert resumed.grants

    async def test_settlements_apply_while_paused(self, store: LeaseStore) -> None:
        """A pause must not turn completed work into redeliveries."""
        group = a_group()
        paused = replace(group, is_paused=True)
        await opened(store, group, queues(9, 5, 3))
        carried, acked, extended = [await granted(store, group) for _ in range(3)]

        by_receive = await ask(store, paused, carrying=[Settlement(verb=Verb.ACK, lease=carried.lease)])
        by_ack = await ack(store, paused, acked.lease)
        by_extend = await extend(store, paused, extended.lease, _MINUTE)

        assert [result.outcome for result in by_receive.settled] == [SettlementOutcome.APPLIED]
        assert (by_ack, by_extend) == (SettlementOutcome.APPLIED, SettlementOutcome.APPLIED)


class RateContract:
    async def test_a_burst_is_granted_and_not_one_message_more(self, store: LeaseStore) -> None:
        """The limit shortens a batch exactly."""
        group = a_group(rate_limit=RateLimit(rate=5, burst=10))
        await opened(store, group, queues(30, 20, 10))

        first = await granted(store, group, max_count=7)
        second = await granted(store, group, max_count=7)
        third = await ask(store, group)

        assert [grant.lease.next - grant.lease.start for grant in (first, second)] == [7, 3]
        assert not third.grants
        assert third.state is ReceiveState.RATE_LIMITED

    async def test_tokens_are_refilled_exactly_with_time(self, store: LeaseStore, clock: ManualClock) -> None:
        """Five per second is one every 200 ms, and never more than the burst."""
        group = a_group(rate_limit=RateLimit(rate=5, burst=10))
        await opened(store, group, queues(100))
        await ack(store, group, (await granted(store, group)).lease)

        clock.advance(0.199)
        early = await ask(store, group)
        clock.advance(0.001)
        one = await granted(store, group)
        await ack(store, group, one.lease)
        clock.advance(3600)
        full = await granted(store, group)

        assert not early.grants
        assert one.lease.next - one.lease.start == 1
        assert full.lease.next - full.lease.start == 10

    async def test_over_any_window_no_more_than_burst_plus_rate_is_granted(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Invariant 22 must hold for any poll times, batch sizes and numbers of consumers."""
        group = a_group(rate_limit=RateLimit(rate=7, burst=4))
        await opened(store, group, queues(2_000, 2_000, 2_000))
        began = clock.now
        given = 0

        for step in range(200):
            for max_count in (1, 3, 5):
                for grant in (await ask(store, group, max_count=max_count)).grants:
                    given += grant.lease.next - grant.lease.start
                    await ack(store, group, grant.lease)
            clock.advance(0.013 + step % 7 / 100)

        seconds = (clock.now - began).total_seconds()
        assert given <= 4 + 7 * seconds
        assert given >= 7 * seconds - 4

    async def test_an_empty_receive_takes_no_tokens(self, store: LeaseStore) -> None:
        """Polling an empty group must not delay the next delivery."""
        group = a_group(rate_limit=RateLimit(rate=1, burst=5))
        await opened(store, group, queues(0))
        for _ in range(20):
            await ask(store, group)

        grant = await granted(store, group, bounds=queues(9), max_count=5)

        assert grant.lease.next == 5

    async def test_a_repeated_attempt_takes_no_tokens(self, store: LeaseStore) -> None:
        """The same messages must be counted once."""
        group = a_group(rate_limit=RateLimit(rate=1, burst=5))
        await opened(store, group, queues(9, 8))
        for _ in range(3):
            await granted(store, group, max_count=3, attempt="a1")

        rest = await granted(store, group, max_count=3)

        assert rest.lease.next - rest.lease.start == 2
