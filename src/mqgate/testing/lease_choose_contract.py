"""Lease store contract: which queue a receive is given, and that it is given to nobody else."""

import asyncio
from datetime import timedelta

from mqgate.core.lease import AGEING, QueueBounds, ReceiveState
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import OTHER, QUEUE, ack, ask, granted, opened, position
from mqgate.testing.samples import a_group, queues

_MOMENT = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)


class ChooseContract:
    async def test_a_group_without_state_is_unknown_until_it_is_opened(self, store: LeaseStore) -> None:
        """A store that lost its state must say so, instead of inventing a position."""
        group = a_group()

        before = await ask(store, group, bounds=queues(5))
        is_new = await opened(store, group, queues(5))
        is_new_again = await opened(store, group, queues(5), starts={QUEUE: 3})

        assert not before.state_exists
        assert is_new
        assert not is_new_again
        assert (await granted(store, group)).lease.start == 0

    async def test_the_largest_backlog_is_served_first(self, store: LeaseStore) -> None:
        """Patent claim 7: consumers go where most of the work is."""
        group = a_group()
        await opened(store, group, queues(3, 7, 5))

        first, second, third = [(await granted(store, group)).lease.queue for _ in range(3)]

        assert [first, second, third] == ["local:1", "local:2", "local:0"]

    async def test_of_equal_backlogs_the_least_recently_consumed_goes_first(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Without this rule one queue of many equal ones could be served for ever."""
        group = a_group()
        await opened(store, group, queues(5, 4))
        one = await granted(store, group, max_count=1)
        clock.advance(1)
        await ack(store, group, one.lease)

        following = await granted(store, group)

        assert one.lease.queue == QUEUE
        assert following.lease.queue == OTHER

    async def test_a_queue_unserved_for_thirty_seconds_goes_before_the_fullest(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Ageing: a quiet queue beside a flooded one still makes progress, and not a moment too early."""
        group = a_group()
        await opened(store, group, queues(1_000, 1))
        flood = await granted(store, group, max_count=1)
        await ack(store, group, flood.lease)

        clock.advance(AGEING - _MOMENT)
        just_before = await granted(store, group, max_count=1)
        await ack(store, group, just_before.lease)
        clock.advance(_MOMENT)
        at_last = await granted(store, group, max_count=1)

        assert just_before.lease.queue == QUEUE
        assert at_last.lease.queue == OTHER

    async def test_of_aged_queues_the_longest_unserved_goes_first(self, store: LeaseStore, clock: ManualClock) -> None:
        """Ageing is a queue of its own: first waited, first served, whatever the backlogs."""
        group = a_group()
        await opened(store, group, queues(10, 20, 30))
        for _ in range(3):
            await granted(store, group, max_count=1)
            clock.advance(1)

        clock.advance(AGEING)
        served = [(await granted(store, group, bounds={QUEUE: QueueBounds(0, 99)})).lease.queue for _ in range(3)]

        assert served == ["local:2", "local:1", "local:0"]

    async def test_what_came_while_nobody_asked_ages_from_when_it_came(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Unserved is unserved: a group may be idle, and hear of several queues at once when it comes back."""
        group = a_group()
        await opened(store, group, queues(0, 0, 0, 0))
        came = clock()
        clock.advance(AGEING + 5 * _SECOND)
        recent, ahead = clock() - 1_000, clock() + 9_000
        last_append_ms = {"local:0": came + 4_000, "local:1": came + 3_000, "local:2": recent, "local:3": ahead}

        first = await granted(store, group, bounds=queues(1, 2, 50, 90), last_append_ms=last_append_ms)
        others = [(await granted(store, group)).lease.queue for _ in range(3)]

        assert [first.lease.queue, *others] == ["local:1", "local:0", "local:3", "local:2"]

    async def test_what_came_to_a_queue_with_backlog_makes_it_no_younger(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Else a queue that gets a message every second would never be served beside a fuller one."""
        group = a_group()
        await opened(store, group, queues(1, 50))
        clock.advance(AGEING)

        served = await granted(
            store, group, bounds=queues(2, 60), last_append_ms={"local:0": clock(), "local:1": clock()}
        )

        assert served.lease.queue == QUEUE

    async def test_a_queue_that_retention_had_emptied_waits_from_its_next_message_on(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """What nobody consumed in time is gone; it gives what comes later no advantage."""
        group = a_group()
        await opened(store, group, queues(1, 9))
        await ask(store, group, bounds={QUEUE: QueueBounds(1, 1)}, closed=[QUEUE, OTHER])

        clock.advance(AGEING)
        await ack(store, group, (await granted(store, group, max_count=1)).lease)
        served = await granted(store, group, max_count=1, bounds={QUEUE: QueueBounds(1, 2)})

        assert served.lease.queue == OTHER

    async def test_a_held_queue_is_given_to_nobody_else(self, store: LeaseStore) -> None:
        """The lock: two consumers never work on one queue at once."""
        group = a_group()
        await opened(store, group, queues(9, 2))

        first = await granted(store, group, max_count=3)
        second = await granted(store, group, max_count=3)
        third = await ask(store, group)

        assert {first.lease.queue, second.lease.queue} == {QUEUE, OTHER}
        assert not third.grants
        assert third.state is ReceiveState.BUSY

    async def test_nothing_to_do_is_ok_not_busy(self, store: LeaseStore) -> None:
        """A client may tell an empty topic from a crowded one."""
        group = a_group()
        await opened(store, group, queues(0, 0))

        acquired = await ask(store, group)

        assert not acquired.grants
        assert acquired.state is ReceiveState.OK

    async def test_a_batch_starts_at_committed_and_ends_at_the_queues_end_or_the_wish(self, store: LeaseStore) -> None:
        """Invariant 7: consecutive from committed, never beyond what is stored, never more than asked."""
        group = a_group()
        await opened(store, group, queues(5), starts={QUEUE: 1})

        short = await granted(store, group, max_count=3)
        await ack(store, group, short.lease)
        rest = await granted(store, group, max_count=3)

        assert (short.lease.start, short.lease.next) == (1, 4)
        assert (rest.lease.start, rest.lease.next) == (4, 5)

    async def test_heads_told_once_are_remembered(self, store: LeaseStore) -> None:
        """Gateways tell only what changed; flat cost depends on it."""
        group = a_group()
        await opened(store, group, queues(0, 0))

        told = await granted(store, group, bounds={OTHER: queues(0, 4)[OTHER]}, max_count=1)
        await ack(store, group, told.lease)
        untold = await granted(store, group)

        assert (untold.lease.queue, untold.lease.start, untold.lease.next) == (OTHER, 1, 4)

    async def test_a_lease_ends_at_its_instant_and_not_before(self, store: LeaseStore, clock: ManualClock) -> None:
        """Invariants 5 and 18: intervals of two leases touch, and never overlap."""
        group = a_group(visibility=timedelta(seconds=30))
        await opened(store, group, queues(5))
        first = await granted(store, group)

        clock.advance(timedelta(seconds=30) - _MOMENT)
        early = await ask(store, group)
        clock.advance(_MOMENT)
        second = await granted(store, group)

        assert not early.grants
        assert first.leased_until == clock.now
        assert second.delivery == 2
        assert second.lease.epoch > first.lease.epoch

    async def test_every_grant_has_a_larger_epoch(self, store: LeaseStore) -> None:
        """Invariant 6 stands on this: what is newer can be told from what is older without a clock."""
        group = a_group()
        await opened(store, group, queues(4))
        epochs = []

        for _ in range(4):
            grant = await granted(store, group, max_count=1)
            epochs.append(grant.lease.epoch)
            await ack(store, group, grant.lease)

        assert epochs == sorted(set(epochs))

    async def test_concurrent_receives_never_share_a_queue(self, store: LeaseStore) -> None:
        """Choose, lock and epoch are one atomic step, also with forty callers at once."""
        group = a_group()
        await opened(store, group, queues(*range(1, 21)))

        answers = await asyncio.gather(*(ask(store, group) for _ in range(40)))

        given = [grant.lease.queue for answer in answers for grant in answer.grants]
        assert len(given) == len(set(given)) == 20

    async def test_a_first_receive_leaves_its_trace_though_state_had_to_be_made_for_it(self, store: LeaseStore) -> None:
        """As every broadcast client's first one: it is asked twice within a moment, and was seen once."""
        group = a_group()
        await ask(store, group, polled_by="ada")
        await opened(store, group, queues(5))
        await ask(store, group, polled_by="ada", bounds=queues(5, 1))
        await opened(store, group, queues(5, 1))

        await ask(store, group, polled_by="ada")

        assert [each.name for each in await store.clients(group.name)] == ["ada"]

    async def test_a_receive_leaves_its_trace_for_operators(self, store: LeaseStore, clock: ManualClock) -> None:
        """Who polled when, and what it holds, is the first question in an incident."""
        group = a_group()
        await opened(store, group, queues(5, 1))
        first_seen = clock.now
        await granted(store, group, polled_by="ada")
        clock.advance(5)
        grant = await granted(store, group, polled_by="ben")
        await ack(store, group, grant.lease)

        seen = {each.name: each for each in await store.clients(group.name)}

        assert list(seen["ada"].holds) == [QUEUE]
        assert list(seen["ben"].holds) == []
        assert (seen["ada"].first_seen, seen["ben"].last_seen) == (first_seen, clock.now)
        assert (await position(store, group)).last_client == "ada"
        assert (await position(store, group, OTHER)).last_consumed_at == clock.now
