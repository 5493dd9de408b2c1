"""Lease store contract, message mode: closed queues. Nothing in them is granted, and their state does not change."""

from datetime import timedelta

from mqgate.core.entries import RateLimit
from mqgate.core.lease import ReceiveState, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import OTHER, QUEUE, ack, ask, committed, nack, opened, position
from mqgate.testing.message_leasing import HOUR, deliveries, lag, one, places, singles, taken, workers
from mqgate.testing.samples import queues


class ClosedMessageContract:
    async def test_new_messages_of_a_closed_queue_are_not_granted(self, store: LeaseStore) -> None:
        """Other queues continue, and the queue continues at its position when it opens."""
        group = workers()
        await opened(store, group, queues(3, 2))
        await ack(store, group, await one(store, group, closed=[OTHER]))
        before = await position(store, group)

        shut = await taken(store, group, closed=[QUEUE])
        untouched = await position(store, group)
        open_again = await taken(store, group)

        assert places(shut) == [(OTHER, 0), (OTHER, 1)]
        assert untouched == before
        assert places(open_again) == [(QUEUE, 1), (QUEUE, 2)]

    async def test_many_closed_queues_do_not_hide_an_open_one(self, store: LeaseStore) -> None:
        """In a wide topic half of the brokers may be down."""
        group = workers()
        bounds = queues(*[5] * 101)
        await opened(store, group, bounds)
        closed = [queue for queue in bounds if queue != "local:100"]

        found = await taken(store, group, closed=closed, max_count=9)

        assert {lease.queue for lease in found} == {"local:100"}
        assert len(found) == 5

    async def test_failed_messages_of_a_closed_queue_are_not_redelivered(self, store: LeaseStore) -> None:
        """Many due messages of a closed queue must not hide those of an open one."""
        group = workers()
        await opened(store, group, queues(3, 1))
        for lease in await taken(store, group):
            await nack(store, group, lease)

        shut = await taken(store, group, closed=[QUEUE], max_count=1)
        again = await deliveries(store, group)

        assert places(shut) == [(OTHER, 0)]
        assert again == [2]
        assert await lag(store, group) == (0, 3, 0)

    async def test_a_backlog_in_closed_queues_only_is_busy_without_a_next_instant(self, store: LeaseStore) -> None:
        """New, failed and leased messages of closed queues must not cause a retry."""
        group = workers()
        await opened(store, group, queues(3, 3, 0))
        for lease in await taken(store, group, closed=[OTHER], max_count=2):
            await nack(store, group, lease)
        await one(store, group, closed=[OTHER])

        empty = await ask(store, group, closed=[QUEUE, OTHER], has_other_waiters=True)

        assert not empty.grants
        assert (empty.state, empty.next_at, empty.has_more) == (ReceiveState.BUSY, None, False)
        assert not empty.is_span_full

    async def test_a_closed_queue_does_not_count_as_more(self, store: LeaseStore) -> None:
        """Another parked receive must not be woken for messages that cannot be read."""
        group = workers()
        await opened(store, group, queues(3, 1))
        await nack(store, group, await one(store, group, closed=[OTHER]))

        given = await ask(store, group, closed=[QUEUE], has_other_waiters=True)

        assert places(singles(given)) == [(OTHER, 0)]
        assert not given.has_more
        assert given.next_at == given.grants[0].leased_until

    async def test_a_closed_queue_is_busy_and_not_rate_limited(self, store: LeaseStore) -> None:
        """More tokens would not help."""
        group = workers(rate_limit=RateLimit(rate=1, burst=1))
        await opened(store, group, queues(3, 1))
        await ack(store, group, await one(store, group, closed=[QUEUE]))

        empty = await ask(store, group, closed=[QUEUE])

        assert (empty.state, empty.next_at) == (ReceiveState.BUSY, None)

    async def test_a_lease_of_a_closed_queue_counts_towards_the_cap_until_it_expires(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A parked receive must learn when the in-flight cap allows the next grant."""
        group = workers(max_in_flight=1)
        await opened(store, group, queues(1, 1))
        await one(store, group, closed=[OTHER])

        full = await ask(store, group, closed=[QUEUE])
        clock.advance(group.visibility)
        freed = await taken(store, group, closed=[QUEUE])

        assert (full.state, full.next_at) == (ReceiveState.IN_FLIGHT_CAP, clock.now)
        assert places(freed) == [(OTHER, 0)]

    async def test_a_lease_of_a_closed_queue_can_be_settled(self, store: LeaseStore) -> None:
        """The consumer has the message, so its settlement must count, alone or carried by a receive."""
        group = workers()
        await opened(store, group, queues(2))
        first, second = await taken(store, group)
        carried = Settlement(verb=Verb.ACK, lease=first)

        acquired = await ask(store, group, closed=[QUEUE], carrying=[carried])

        assert [result.outcome for result in acquired.settled] == [SettlementOutcome.APPLIED]
        assert await ack(store, group, second) is SettlementOutcome.APPLIED
        assert await committed(store, group) == 2

    async def test_an_exhausted_message_in_a_closed_queue_waits_until_it_is_open(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """This applies to nacks and expired leases. Exhausted messages of open queues are reported."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(2, 1))
        nacked, _, other = await taken(store, group)
        verbs = [Settlement(verb=Verb.NACK, lease=lease) for lease in (nacked, other)]

        by_nack = await ask(store, group, closed=[QUEUE], carrying=verbs)
        clock.advance(group.visibility)
        by_end = await ask(store, group, closed=[QUEUE])
        open_again = await ask(store, group)

        assert [result.outcome for result in by_nack.settled] == [SettlementOutcome.APPLIED] * 2
        assert places(message.lease for message in by_nack.exhausted) == [(OTHER, 0)]
        assert places(message.lease for message in by_end.exhausted) == [(OTHER, 0)]
        assert sorted(places(message.lease for message in open_again.exhausted)) == [(QUEUE, 0), (QUEUE, 1), (OTHER, 0)]
        assert not open_again.grants

    async def test_a_repeated_attempt_returns_its_leases_in_open_queues(self, store: LeaseStore) -> None:
        """The receipts must be the same, and complete once the other queue opens."""
        group = workers()
        await opened(store, group, queues(2, 1))
        first = await taken(store, group, attempt="a1")

        shut = await taken(store, group, attempt="a1", closed=[QUEUE])
        open_again = await taken(store, group, attempt="a1")

        assert shut == [lease for lease in first if lease.queue == OTHER]
        assert open_again == first

    async def test_an_attempt_in_closed_queues_moves_to_other_messages(self, store: LeaseStore) -> None:
        """A repeat must not wait for a broker while there is other work, nor get more messages later."""
        group = workers()
        await opened(store, group, queues(2, 0))
        first = await taken(store, group, attempt="a1")
        nothing = await ask(store, group, attempt="a1", closed=[QUEUE])
        kept = await taken(store, group, attempt="a1")

        other = await taken(store, group, attempt="a1", closed=[QUEUE], bounds=queues(2, 1))
        again = await taken(store, group, attempt="a1")

        assert (list(nothing.grants), nothing.state) == ([], ReceiveState.BUSY)
        assert kept == first
        assert places(other) == [(OTHER, 0)]
        assert again == other
        assert await ack(store, group, first[0]) is SettlementOutcome.APPLIED

    async def test_a_delay_in_a_closed_queue_does_not_affect_the_next_instant(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Only redeliveries of open queues are a reason to try again."""
        group = workers()
        await opened(store, group, queues(1, 1))
        for lease in await taken(store, group):
            delay = timedelta(minutes=1) if lease.queue == QUEUE else HOUR
            await nack(store, group, lease, delay=delay)

        empty = await ask(store, group, closed=[QUEUE])

        assert empty.next_at == clock.now + HOUR
