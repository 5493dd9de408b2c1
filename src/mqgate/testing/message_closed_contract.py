"""Lease store contract, message mode: queues that cannot be read now. Nothing of them is granted, nothing is lost."""

from datetime import timedelta

from mqgate.core.entries import RateLimit
from mqgate.core.lease import ReceiveState, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import OTHER, QUEUE, ack, ask, committed, nack, opened, position
from mqgate.testing.message_leasing import HOUR, deliveries, lag, one, places, singles, taken, workers
from mqgate.testing.samples import queues


class ClosedMessageContract:
    async def test_nothing_new_of_a_closed_queue_is_granted(self, store: LeaseStore) -> None:
        """The others go on; opened again it goes on where it stood."""
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

    async def test_more_closed_queues_than_a_receive_has_ranges_hide_nothing(self, store: LeaseStore) -> None:
        """A wide topic with half of its brokers down: the one queue behind a hundred closed ones is found."""
        group = workers()
        bounds = queues(*[5] * 101)
        await opened(store, group, bounds)
        closed = [queue for queue in bounds if queue != "local:100"]

        found = await taken(store, group, closed=closed, max_count=9)

        assert {lease.queue for lease in found} == {"local:100"}
        assert len(found) == 5

    async def test_nothing_of_a_closed_queue_is_redelivered(self, store: LeaseStore) -> None:
        """Failed messages are due at once here, and more of them than the receive asks for stand before another's."""
        group = workers()
        await opened(store, group, queues(3, 1))
        for lease in await taken(store, group):
            await nack(store, group, lease)

        shut = await taken(store, group, closed=[QUEUE], max_count=1)
        again = await deliveries(store, group)

        assert places(shut) == [(OTHER, 0)]
        assert again == [2]
        assert await lag(store, group) == (0, 3, 0)

    async def test_backlog_in_closed_queues_alone_is_busy_and_no_reason_to_hurry(self, store: LeaseStore) -> None:
        """New, failed and leased messages: none of them is a time to try again at."""
        group = workers()
        await opened(store, group, queues(3, 3, 0))
        for lease in await taken(store, group, closed=[OTHER], max_count=2):
            await nack(store, group, lease)
        await one(store, group, closed=[OTHER])

        empty = await ask(store, group, closed=[QUEUE, OTHER], has_other_waiters=True)

        assert not empty.grants
        assert (empty.state, empty.next_at, empty.has_more) == (ReceiveState.BUSY, None, False)
        assert not empty.is_span_full

    async def test_a_closed_queue_is_nothing_more_to_have(self, store: LeaseStore) -> None:
        """Who leaves with what can be read wakes nobody for the rest; its own lease is the next event."""
        group = workers()
        await opened(store, group, queues(3, 1))
        await nack(store, group, await one(store, group, closed=[OTHER]))

        given = await ask(store, group, closed=[QUEUE], has_other_waiters=True)

        assert places(singles(given)) == [(OTHER, 0)]
        assert not given.has_more
        assert given.next_at == given.grants[0].leased_until

    async def test_without_tokens_a_closed_queue_is_busy_not_rate_limited(self, store: LeaseStore) -> None:
        """No token would help."""
        group = workers(rate_limit=RateLimit(rate=1, burst=1))
        await opened(store, group, queues(3, 1))
        await ack(store, group, await one(store, group, closed=[QUEUE]))

        empty = await ask(store, group, closed=[QUEUE])

        assert (empty.state, empty.next_at) == (ReceiveState.BUSY, None)

    async def test_at_the_cap_a_lease_of_a_closed_queue_still_frees_its_place(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Who waits for a place is told when there will be one, wherever it is."""
        group = workers(max_in_flight=1)
        await opened(store, group, queues(1, 1))
        await one(store, group, closed=[OTHER])

        full = await ask(store, group, closed=[QUEUE])
        clock.advance(group.visibility)
        freed = await taken(store, group, closed=[QUEUE])

        assert (full.state, full.next_at) == (ReceiveState.IN_FLIGHT_CAP, clock.now)
        assert places(freed) == [(OTHER, 0)]

    async def test_a_lease_of_a_closed_queue_is_settled_as_always(self, store: LeaseStore) -> None:
        """The consumer has the message: what it did counts, alone or carried by a receive."""
        group = workers()
        await opened(store, group, queues(2))
        first, second = await taken(store, group)
        carried = Settlement(verb=Verb.ACK, lease=first)

        told = await ask(store, group, closed=[QUEUE], carrying=[carried])

        assert [each.outcome for each in told.settled] == [SettlementOutcome.APPLIED]
        assert await ack(store, group, second) is SettlementOutcome.APPLIED
        assert await committed(store, group) == 2

    async def test_what_must_die_in_a_closed_queue_waits_until_it_opens(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """By nack or by the end of its last lease; the other queue's dead are told as always."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(2, 1))
        nacked, _, other = await taken(store, group)
        verbs = [Settlement(verb=Verb.NACK, lease=lease) for lease in (nacked, other)]

        by_nack = await ask(store, group, closed=[QUEUE], carrying=verbs)
        clock.advance(group.visibility)
        by_end = await ask(store, group, closed=[QUEUE])
        open_again = await ask(store, group)

        assert [each.outcome for each in by_nack.settled] == [SettlementOutcome.APPLIED] * 2
        assert places(each.lease for each in by_nack.exhausted) == [(OTHER, 0)]
        assert places(each.lease for each in by_end.exhausted) == [(OTHER, 0)]
        assert sorted(places(each.lease for each in open_again.exhausted)) == [(QUEUE, 0), (QUEUE, 1), (OTHER, 0)]
        assert not open_again.grants

    async def test_an_attempt_is_given_again_what_lies_in_open_queues(self, store: LeaseStore) -> None:
        """The same receipts for what can be read; all of them once the other queue opens."""
        group = workers()
        await opened(store, group, queues(2, 1))
        first = await taken(store, group, attempt="a1")

        shut = await taken(store, group, attempt="a1", closed=[QUEUE])
        open_again = await taken(store, group, attempt="a1")

        assert shut == [lease for lease in first if lease.queue == OTHER]
        assert open_again == first

    async def test_an_attempt_in_closed_queues_is_given_something_else_and_means_that_from_then_on(
        self, store: LeaseStore
    ) -> None:
        """A repeat must not wait for a broker while there is other work; nor get more than it asked for later."""
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

    async def test_a_delay_in_a_closed_queue_is_no_news(self, store: LeaseStore, clock: ManualClock) -> None:
        """Only the open queue's redelivery is a time to try again at."""
        group = workers()
        await opened(store, group, queues(1, 1))
        for lease in await taken(store, group):
            delay = timedelta(minutes=1) if lease.queue == QUEUE else HOUR
            await nack(store, group, lease, delay=delay)

        empty = await ask(store, group, closed=[QUEUE])

        assert empty.next_at == clock.now + HOUR
