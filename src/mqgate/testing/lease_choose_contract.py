"""Lease store contract: which queue is granted, and that it is granted to one consumer only."""

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
    async def test_a_group_without_state_is_reported(self, store: LeaseStore) -> None:
        """A store that lost its state must report it and not invent a position."""
        group = a_group()

        before = await ask(store, group, bounds=queues(5))
        is_new = await opened(store, group, queues(5))
        is_new_again = await opened(store, group, queues(5), starts={QUEUE: 3})

        assert not before.state_exists
        assert is_new
        assert not is_new_again
        assert (await granted(store, group)).lease.start == 0

    async def test_the_largest_backlog_is_served_first(self, store: LeaseStore) -> None:
        """Patent claim 7: consumers work where the backlog is largest."""
        group = a_group()
        await opened(store, group, queues(3, 7, 5))

        first, second, third = [(await granted(store, group)).lease.queue for _ in range(3)]

        assert [first, second, third] == ["local:1", "local:2", "local:0"]

    async def test_of_equal_backlogs_the_least_recently_consumed_is_served_first(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Otherwise one of many equal queues could be served forever."""
        group = a_group()
        await opened(store, group, queues(5, 4))
        one = await granted(store, group, max_count=1)
        clock.advance(1)
        await ack(store, group, one.lease)

        following = await granted(store, group)

        assert one.lease.queue == QUEUE
        assert following.lease.queue == OTHER

    async def test_a_queue_not_served_for_thirty_seconds_is_served_before_the_fullest(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A quiet queue beside a flooded one must make progress, but not too early."""
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

    async def test_of_aged_queues_the_longest_waiting_is_served_first(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Aged queues are served in the order in which they waited, whatever their backlogs."""
        group = a_group()
        await opened(store, group, queues(10, 20, 30))
        for _ in range(3):
            await granted(store, group, max_count=1)
            clock.advance(1)

        clock.advance(AGEING)
        served = [(await granted(store, group, bounds={QUEUE: QueueBounds(0, 99)})).lease.queue for _ in range(3)]

        assert served == ["local:2", "local:1", "local:0"]

    async def test_a_queue_ages_from_the_arrival_of_its_messages(self, store: LeaseStore, clock: ManualClock) -> None:
        """A group may be idle when messages arrive, and then find several queues at once."""
        group = a_group()
        await opened(store, group, queues(0, 0, 0, 0))
        arrived = clock()
        clock.advance(AGEING + 5 * _SECOND)
        recent, ahead = clock() - 1_000, clock() + 9_000
        last_append_ms = {"local:0": arrived + 4_000, "local:1": arrived + 3_000, "local:2": recent, "local:3": ahead}

        first = await granted(store, group, bounds=queues(1, 2, 50, 90), last_append_ms=last_append_ms)
        others = [(await granted(store, group)).lease.queue for _ in range(3)]

        assert [first.lease.queue, *others] == ["local:1", "local:0", "local:3", "local:2"]

    async def test_new_messages_do_not_reset_the_age_of_a_backlog(self, store: LeaseStore, clock: ManualClock) -> None:
        """Otherwise a queue with a steady small inflow would never be served."""
        group = a_group()
        await opened(store, group, queues(1, 50))
        clock.advance(AGEING)

        served = await granted(
            store, group, bounds=queues(2, 60), last_append_ms={"local:0": clock(), "local:1": clock()}
        )

        assert served.lease.queue == QUEUE

    async def test_a_queue_emptied_by_retention_ages_from_its_next_message(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Deleted messages must give later ones no advantage."""
        group = a_group()
        await opened(store, group, queues(1, 9))
        await ask(store, group, bounds={QUEUE: QueueBounds(1, 1)}, closed=[QUEUE, OTHER])

        clock.advance(AGEING)
        await ack(store, group, (await granted(store, group, max_count=1)).lease)
        served = await granted(store, group, max_count=1, bounds={QUEUE: QueueBounds(1, 2)})

        assert served.lease.queue == OTHER

    async def test_a_leased_queue_is_not_granted_again(self, store: LeaseStore) -> None:
        """Two consumers must never work on one queue at the same time."""
        group = a_group()
        await opened(store, group, queues(9, 2))

        first = await granted(store, group, max_count=3)
        second = await granted(store, group, max_count=3)
        third = await ask(store, group)

        assert {first.lease.queue, second.lease.queue} == {QUEUE, OTHER}
        assert not third.grants
        assert third.state is ReceiveState.BUSY

    async def test_an_empty_topic_is_ok_and_not_busy(self, store: LeaseStore) -> None:
        """A client must be able to distinguish an empty topic from one whose queues are all leased."""
        group = a_group()
        await opened(store, group, queues(0, 0))

        acquired = await ask(store, group)

        assert not acquired.grants
        assert acquired.state is ReceiveState.OK

    async def test_a_batch_starts_at_committed_and_respects_max_and_the_queue_end(self, store: LeaseStore) -> None:
        """Invariant 7: batches are consecutive and never exceed what is stored or requested."""
        group = a_group()
        await opened(store, group, queues(5), starts={QUEUE: 1})

        short = await granted(store, group, max_count=3)
        await ack(store, group, short.lease)
        rest = await granted(store, group, max_count=3)

        assert (short.lease.start, short.lease.next) == (1, 4)
        assert (rest.lease.start, rest.lease.next) == (4, 5)

    async def test_reported_bounds_are_remembered(self, store: LeaseStore) -> None:
        """Gateways report only changes, which keeps the cost independent of the number of queues."""
        group = a_group()
        await opened(store, group, queues(0, 0))

        reported = await granted(store, group, bounds={OTHER: queues(0, 4)[OTHER]}, max_count=1)
        await ack(store, group, reported.lease)
        unreported = await granted(store, group)

        assert (unreported.lease.queue, unreported.lease.start, unreported.lease.next) == (OTHER, 1, 4)

    async def test_a_lease_expires_exactly_at_its_deadline(self, store: LeaseStore, clock: ManualClock) -> None:
        """Invariants 5 and 18: the intervals of two leases must not overlap."""
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
        """Invariant 6: newer leases are recognised without a clock."""
        group = a_group()
        await opened(store, group, queues(4))
        epochs = []

        for _ in range(4):
            grant = await granted(store, group, max_count=1)
            epochs.append(grant.lease.epoch)
            await ack(store, group, grant.lease)

        assert epochs == sorted(set(epochs))

    async def test_concurrent_receives_never_share_a_queue(self, store: LeaseStore) -> None:
        """Choosing, leasing and the epoch must be one atomic step."""
        group = a_group()
        await opened(store, group, queues(*range(1, 21)))

        results = await asyncio.gather(*(ask(store, group) for _ in range(40)))

        granted_queues = [grant.lease.queue for result in results for grant in result.grants]
        assert len(granted_queues) == len(set(granted_queues)) == 20

    async def test_a_first_receive_is_recorded_once_although_it_is_repeated(self, store: LeaseStore) -> None:
        """The first receive of a broadcast client is sent twice because its state must be created."""
        group = a_group()
        await ask(store, group, polled_by="ada")
        await opened(store, group, queues(5))
        await ask(store, group, polled_by="ada", bounds=queues(5, 1))
        await opened(store, group, queues(5, 1))

        await ask(store, group, polled_by="ada")

        assert [client.name for client in await store.clients(group.name)] == ["ada"]

    async def test_operators_see_who_polled_and_what_is_leased(self, store: LeaseStore, clock: ManualClock) -> None:
        """During an incident, this is the first question."""
        group = a_group()
        await opened(store, group, queues(5, 1))
        first_seen = clock.now
        await granted(store, group, polled_by="ada")
        clock.advance(5)
        grant = await granted(store, group, polled_by="ben")
        await ack(store, group, grant.lease)

        seen = {client.name: client for client in await store.clients(group.name)}

        assert list(seen["ada"].holds) == [QUEUE]
        assert list(seen["ben"].holds) == []
        assert (seen["ada"].first_seen, seen["ben"].last_seen) == (first_seen, clock.now)
        assert (await position(store, group)).last_client == "ada"
        assert (await position(store, group, OTHER)).last_consumed_at == clock.now
