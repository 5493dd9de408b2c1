"""Lease store contract: a log that changes underneath, and what operators do: seek, pause, limit."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.core.entries import Mode, RateLimit
from mqgate.core.lease import OffsetRange, QueueBounds, ReceiveState, SeekResult, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import (
    LONGEST_DOUBT,
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
    async def test_what_retention_took_is_skipped_and_reported_once(self, store: LeaseStore) -> None:
        """Never a silent gap: the group is told how many messages it lost."""
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

    async def test_what_retention_took_is_no_failure_of_its_successor(self, store: LeaseStore) -> None:
        """The attempts were those of a message that is gone."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(9))
        await nack(store, group, (await granted(store, group)).lease)

        following = await granted(store, group, max_count=2, bounds=queues((3, 9)))

        assert (following.lease.start, following.delivery) == (3, 1)

    async def test_a_queue_emptied_by_retention_is_not_granted(self, store: LeaseStore) -> None:
        """The condition is min <= committed < max; a hole is no backlog."""
        group = a_group()
        await opened(store, group, queues(9))

        acquired = await ask(store, group, bounds=queues((9, 9)))

        assert not acquired.grants
        assert (await position(store, group)).lag == 0

    async def test_a_queue_emptied_by_retention_is_told_of_though_nothing_newer_is_there(
        self, store: LeaseStore
    ) -> None:
        """Whoever asks now hears of it now, once, and not when something is next published."""
        group = a_group()
        await opened(store, group, queues(9, 4))

        acquired = [await ask(store, group, bounds=queues((9, 9), (4, 4))) for _ in range(2)]

        places = await positions(store, group)
        assert [list(each.lost) for each in acquired] == [[OffsetRange(QUEUE, 0, 9), OffsetRange(OTHER, 0, 4)], []]
        assert not any(each.grants for each in acquired)
        assert [(places[each].committed, places[each].expired) for each in (QUEUE, OTHER)] == [(9, 9), (4, 4)]

    async def test_a_queue_emptied_while_it_was_leased_is_told_of_when_the_lease_has_ended(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Until then its holder may still ack."""
        group = a_group()
        await opened(store, group, queues(3))
        held = await granted(store, group)

        before = await ask(store, group, bounds=queues((3, 3)))
        clock.advance(group.visibility)
        after = await ask(store, group)

        assert (before.expired, after.expired) == (0, 3)
        assert await ack(store, group, held.lease) is SettlementOutcome.GONE

    async def test_a_receipt_of_what_retention_took_is_gone(self, store: LeaseStore, clock: ManualClock) -> None:
        """Nobody else had it, nobody finished it: not lost to anybody."""
        group = a_group()
        await opened(store, group, queues(2))
        first = await granted(store, group)
        clock.advance(group.visibility)

        following = await granted(store, group, bounds=queues((2, 3)))

        assert following.lease.start == 2
        assert await ack(store, group, first.lease) is SettlementOutcome.GONE
        assert await nack(store, group, first.lease) is SettlementOutcome.GONE
        assert await ack(store, group, following.lease) is SettlementOutcome.APPLIED

    async def test_a_queue_that_came_back_shorter_restarts_at_its_first_offset(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Never silently at the end: what the broker stored since would be lost."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group)
        await ack(store, group, first.lease)
        clock.advance(LONGEST_DOUBT)

        acquired = await ask(store, group, bounds=queues((1, 4)))

        assert acquired.rewound == 8
        assert [(grant.lease.start, grant.lease.next) for grant in acquired.grants] == [(1, 4)]

    async def test_receipts_from_before_a_rewind_are_gone(self, store: LeaseStore, clock: ManualClock) -> None:
        """The offsets mean other messages now."""
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
        """Messages published before the group heard of the queue are not lost."""
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

    async def test_a_vanished_queues_committed_offset_is_kept(self, store: LeaseStore) -> None:
        """A broker that is away for a while comes back, and the group goes on where it stood."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        grant = await granted(store, group, max_count=4)
        await ack(store, group, grant.lease)
        await ask(store, group, bounds={OTHER: QueueBounds(0, 6)})

        back = await granted(store, group, bounds={QUEUE: QueueBounds(0, 12)})

        assert (back.lease.queue, back.lease.start) == (QUEUE, 4)


class SeekContract:
    async def test_a_seek_moves_committed_and_says_from_where_to_where(self, store: LeaseStore) -> None:
        """Operators see what they did, queue by queue; queues not named stay."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        await ack(store, group, (await granted(store, group, max_count=4)).lease)

        moved = await store.seek(group, "", {QUEUE: 1}, is_dry_run=False)

        assert moved == [SeekResult(QUEUE, 4, 1)]
        assert (await committed(store, group), await committed(store, group, OTHER)) == (1, 0)
        assert (await granted(store, group)).lease.start == 1

    async def test_a_seek_covers_queues_that_it_brings_along(self, store: LeaseStore) -> None:
        """A queue that the group has not met yet is moved like the others; it does not start at its first offset."""
        group = a_group()
        await opened(store, group, queues(9))

        await store.seek(group, "", {QUEUE: 9, OTHER: 5}, bounds=queues(9, 5), is_dry_run=False)

        assert (await committed(store, group), await committed(store, group, OTHER)) == (9, 5)
        assert not (await ask(store, group, bounds=queues(9, 5))).grants

    async def test_a_seek_sweeps_away_every_lease_given_before(self, store: LeaseStore) -> None:
        """Old receipts are gone, whether their lease was running or had ended; the queue is free at once."""
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
        """The swept lease must not come back through the attemptId."""
        group = a_group()
        await opened(store, group, queues(9))
        before = await granted(store, group, attempt="a1", max_count=2)
        await store.seek(group, "", {QUEUE: 5}, is_dry_run=False)

        after = await granted(store, group, attempt="a1", max_count=2)

        assert after.lease.start == 5
        assert after.lease.epoch > before.lease.epoch

    async def test_a_dry_run_tells_the_same_and_changes_nothing(self, store: LeaseStore) -> None:
        """Look before you leap: the lease that runs stays valid."""
        group = a_group()
        await opened(store, group, queues(9))
        held = await granted(store, group, max_count=4)
        before = await positions(store, group)

        moved = await store.seek(group, "", {QUEUE: 7}, is_dry_run=True)

        assert moved == [SeekResult(QUEUE, 0, 7)]
        assert await positions(store, group) == before
        assert await ack(store, group, held.lease) is SettlementOutcome.APPLIED

    async def test_state_that_is_not_there_cannot_be_moved_or_shown(self, store: LeaseStore) -> None:
        """None, not an empty list: the caller must tell unknown from unchanged."""
        group = a_group()

        assert await store.seek(group, "", {QUEUE: 7}, is_dry_run=False) is None
        assert await store.positions(group, "", {}) is None


class CommittedContract:
    @pytest.mark.parametrize("mode", [Mode.QUEUE, Mode.MESSAGE])
    async def test_committed_offsets_are_told_without_a_step(self, store: LeaseStore, mode: Mode) -> None:
        """What is copied beside the messages every few seconds must cost little."""
        group = a_group(mode=mode)
        before = await store.committed(group.name)
        await opened(store, group, queues(9, 5), starts={QUEUE: 0, OTHER: 2})
        grant = await granted(store, group, max_count=4, closed=[OTHER])
        await ack(store, group, grant.lease, through=0)

        assert before is None
        assert await store.committed(group.name) == {QUEUE: 1, OTHER: 2}


class PauseContract:
    async def test_a_paused_group_is_granted_nothing(self, store: LeaseStore) -> None:
        """Pause stops grants; the state says why nothing comes."""
        group = a_group()
        await opened(store, group, queues(9))

        paused = await ask(store, replace(group, is_paused=True))
        resumed = await ask(store, group)

        assert not paused.grants
        assert paused.state is ReceiveState.PAUSED
        assert resumed.grants

    async def test_settlements_go_on_while_paused(self, store: LeaseStore) -> None:
        """Pause must not turn finished work into redeliveries."""
        group = a_group()
        paused = replace(group, is_paused=True)
        await opened(store, group, queues(9, 5, 3))
        carried, acked, extended = [await granted(store, group) for _ in range(3)]

        by_receive = await ask(store, paused, carrying=[Settlement(verb=Verb.ACK, lease=carried.lease)])
        by_ack = await ack(store, paused, acked.lease)
        by_extend = await extend(store, paused, extended.lease, _MINUTE)

        assert [each.outcome for each in by_receive.settled] == [SettlementOutcome.APPLIED]
        assert (by_ack, by_extend) == (SettlementOutcome.APPLIED, SettlementOutcome.APPLIED)


class RateContract:
    async def test_a_burst_is_allowed_and_not_one_message_more(self, store: LeaseStore) -> None:
        """The limit cuts a batch; it does not round it."""
        group = a_group(rate_limit=RateLimit(rate=5, burst=10))
        await opened(store, group, queues(30, 20, 10))

        first = await granted(store, group, max_count=7)
        second = await granted(store, group, max_count=7)
        third = await ask(store, group)

        assert [grant.lease.next - grant.lease.start for grant in (first, second)] == [7, 3]
        assert not third.grants
        assert third.state is ReceiveState.RATE_LIMITED

    async def test_tokens_come_back_exactly_with_time(self, store: LeaseStore, clock: ManualClock) -> None:
        """Five a second is one every 200 ms: not at 199, and no more than the burst after an hour."""
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
        """Invariant 22: exact over odd polls, odd sizes and any number of consumers."""
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

    async def test_a_receive_that_gets_nothing_takes_no_tokens(self, store: LeaseStore) -> None:
        """Polling an empty or busy group must not starve the next delivery."""
        group = a_group(rate_limit=RateLimit(rate=1, burst=5))
        await opened(store, group, queues(0))
        for _ in range(20):
            await ask(store, group)

        grant = await granted(store, group, bounds=queues(9), max_count=5)

        assert grant.lease.next == 5

    async def test_a_repeated_attempt_takes_no_tokens(self, store: LeaseStore) -> None:
        """The same messages are counted once."""
        group = a_group(rate_limit=RateLimit(rate=1, burst=5))
        await opened(store, group, queues(9, 8))
        for _ in range(3):
            await granted(store, group, max_count=3, attempt="a1")

        rest = await granted(store, group, max_count=3)

        assert rest.lease.next - rest.lease.start == 2
