"""Lease store contract, message mode: a failed message comes again later, or dies; caps and rates hold back."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import RateLimit
from mqgate.core.lease import ReceiveState, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import QUEUE, ack, ask, committed, exhausted, nack, opened, position, settled
from mqgate.testing.message_leasing import HOUR, SECOND, deliveries, lag, one, placed, places, singles, taken, workers
from mqgate.testing.samples import queues


class RetryContract:
    async def test_what_retention_took_before_it_could_die_is_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Nobody looked in time: there is nothing to keep, and all the same it is told what became of it."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(5))
        await ask(store, group, max_count=2)
        clock.advance(group.visibility)
        await nack(store, group, await one(store, group))

        found = await ask(store, group, bounds=queues((5, 6)))
        again = await ask(store, group)

        assert sum(span.next - span.start for span in found.lost) == 5
        assert not found.exhausted
        assert places(singles(found)) == [(QUEUE, 5)]
        assert not again.lost
        assert (await position(store, group)).expired == 5

    async def test_a_nacked_message_is_not_granted_before_its_delay_is_over(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Invariant 18, to the millisecond; and told when that will be."""
        group = workers()
        await opened(store, group, queues(1))
        await nack(store, group, await one(store, group), delay=10 * SECOND)
        clock.advance(timedelta(milliseconds=9_999))

        early = await ask(store, group)
        clock.advance(timedelta(milliseconds=1))

        assert not early.grants
        assert early.state is ReceiveState.BUSY
        assert early.next_at == clock.now
        assert await deliveries(store, group) == [2]

    async def test_an_ended_lease_is_a_failed_delivery_and_the_backoff_counts_from_its_end(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The backoff is independent of the lease's length, and of when somebody looked."""
        group = workers(backoff=Backoff(steps=(10 * SECOND,)))
        await opened(store, group, queues(1))
        await one(store, group)
        clock.advance(group.visibility + 10 * SECOND)

        assert await deliveries(store, group) == [2]

    async def test_a_list_of_backoffs_is_used_as_written_and_its_last_entry_repeats(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """People who write a list mean it: no jitter."""
        group = workers(backoff=Backoff(steps=(SECOND, 5 * SECOND)))
        await opened(store, group, queues(1))
        waits = []

        for _ in range(4):
            await nack(store, group, await one(store, group))
            due = (await ask(store, group)).next_at
            assert due is not None
            waits.append((due - clock.now).total_seconds())
            clock.advance(due - clock.now)

        assert waits == [1, 5, 5, 5]

    async def test_an_exponential_backoff_grows_to_its_cap_and_never_beyond(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """`At most 10 min` is what an operator reads; jitter spreads below it."""
        group = workers(backoff=Backoff(initial=SECOND, factor=4, max_delay=30 * SECOND, jitter=0.5), max_attempts=100)
        await opened(store, group, queues(1))
        waits = []

        for _ in range(40):
            await nack(store, group, await one(store, group))
            due = (await ask(store, group)).next_at
            assert due is not None
            waits.append((due - clock.now).total_seconds())
            clock.advance(due - clock.now)

        assert 0.5 <= waits[0] <= 1.5
        assert 2 <= waits[1] <= 6
        assert all(15 <= wait <= 30 for wait in waits[4:])
        assert len(set(waits[4:])) > 1

    async def test_what_is_ready_again_comes_before_what_is_new(self, store: LeaseStore, clock: ManualClock) -> None:
        """A failed message is not starved by a backlog."""
        group = workers()
        await opened(store, group, queues(50))
        await nack(store, group, await one(store, group), delay=SECOND)
        clock.advance(1)

        assert places(await taken(store, group, max_count=2)) == [(QUEUE, 0), (QUEUE, 1)]


class DeadMessageContract:
    async def test_the_last_nack_dooms_the_message_at_once(self, store: LeaseStore, clock: ManualClock) -> None:
        """With what the dead letter must tell: deliveries, first and last time, last reason."""
        group = workers(max_attempts=2)
        await opened(store, group, queues(1))
        first_at = clock.now
        await nack(store, group, await one(store, group), reason="bad day")
        clock.advance(5)
        lease = await one(store, group)

        answer = await settled(store, group, Verb.NACK, lease, reason="still bad")

        assert answer.outcome is SettlementOutcome.APPLIED
        assert answer.exhausted is not None
        assert (answer.exhausted.lease.queue, answer.exhausted.lease.start) == (QUEUE, 0)
        assert (answer.exhausted.deliveries, answer.exhausted.reason) == (2, "still bad")
        assert (answer.exhausted.first_at, answer.exhausted.last_at) == (first_at, clock.now)

    @pytest.mark.parametrize("look", ["receive", "paused receive", "positions"])
    async def test_the_last_ended_lease_dooms_the_message_when_somebody_looks(
        self, store: LeaseStore, clock: ManualClock, look: str
    ) -> None:
        """Nobody has to wait for it, and nobody sees it half alive; its last receipt is lost."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(group.visibility)

        if look == "positions":
            found = await exhausted(store, group)
        else:
            found = (await ask(store, workers(max_attempts=1, is_paused="paused" in look))).exhausted

        assert [(each.lease.start, each.deliveries) for each in found] == [(0, 1)]
        assert found[0].last_at == clock.now
        assert await ack(store, group, lease) is SettlementOutcome.LOST

    async def test_a_doomed_message_is_named_until_it_is_buried_and_buried_once(self, store: LeaseStore) -> None:
        """A gateway that dies in between leaves the work to the next; only one of two counts the death."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(2))
        first, second = await taken(store, group)
        await ack(store, group, second)
        await nack(store, group, first)
        (named,) = await exhausted(store, group)
        assert not (await ask(store, group)).grants
        assert await committed(store, group) == 0

        buried = [await store.settle_dead(group, named) for _ in range(3)]

        assert buried == [True, False, False]
        assert await committed(store, group) == 2
        assert await lag(store, group) == (0, 0, 0)
        assert not await exhausted(store, group)

    async def test_a_message_that_retention_took_before_it_could_be_kept_is_expired(self, store: LeaseStore) -> None:
        """Each message is in one place: what is no dead letter is counted as lost to retention."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(2))
        first, _ = await taken(store, group)
        await nack(store, group, first)
        (named,) = await exhausted(store, group)

        buried = [await store.settle_dead(group, named, is_expired=True) for _ in range(2)]

        assert buried == [True, False]
        assert (await position(store, group)).expired == 1

    async def test_deliveries_never_exceed_the_most_attempts(self, store: LeaseStore, clock: ManualClock) -> None:
        """Invariant 17, failing by nack and by silence in turn."""
        group = workers(max_attempts=5)
        await opened(store, group, queues(1))
        counts = []

        for number in range(5):
            (grant,) = (await ask(store, group)).grants
            counts.append(grant.delivery)
            if number % 2:
                await nack(store, group, grant.lease)
            clock.advance(group.visibility)

        assert counts == [1, 2, 3, 4, 5]
        assert not (await ask(store, group)).grants
        assert len(await exhausted(store, group)) == 1

    @pytest.mark.parametrize("look", ["receive", "paused receive", "positions"])
    async def test_a_lowered_limit_counts_the_deliveries_of_before(
        self, store: LeaseStore, clock: ManualClock, look: str
    ) -> None:
        """Invariant 17 holds by the limit of now: who had more deliveries dies with as many as it had."""
        group = workers(max_attempts=5)
        await opened(store, group, queues(1))
        for reason in ("odd", "bad", "worse"):
            await nack(store, group, await one(store, group), reason=reason)
        lowered = replace(group, max_attempts=2, is_paused="paused" in look)

        answered = None if look == "positions" else await ask(store, lowered, max_count=1)
        found = await exhausted(store, lowered)

        assert answered is None or not answered.grants
        assert answered is None or list(answered.exhausted) == list(found)
        assert [(each.lease.start, each.deliveries, each.reason) for each in found] == [(0, 3, "worse")]
        assert found[0].last_at == clock.now
        assert await store.settle_dead(lowered, found[0])
        assert await lag(store, lowered) == (0, 0, 0)
        assert await committed(store, lowered) == 1

    async def test_a_lowered_limit_waits_for_what_is_held_or_delayed(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A consumer at work may still succeed; and what was ready only later dies no sooner."""
        group = workers(max_attempts=5)
        await opened(store, group, queues(2))
        for _ in range(2):
            for lease in await taken(store, group):
                await nack(store, group, lease)
        held, delayed = await taken(store, group)
        await nack(store, group, delayed, delay=HOUR)
        lowered = replace(group, max_attempts=2)

        assert not await exhausted(store, lowered)
        assert await ack(store, lowered, held) is SettlementOutcome.APPLIED
        clock.advance(HOUR)
        assert [each.lease.start for each in (await ask(store, lowered)).exhausted] == [1]
        assert await ack(store, lowered, delayed) is SettlementOutcome.LOST


class CapContract:
    async def test_at_the_cap_nothing_is_granted_until_something_is_settled(self, store: LeaseStore) -> None:
        """The cap bounds what a group holds, over all its consumers."""
        group = workers(max_in_flight=3)
        await opened(store, group, queues(10))
        leases = await taken(store, group, max_count=10)

        full = await ask(store, group)
        await ack(store, group, leases[0])
        await nack(store, group, leases[1], delay=HOUR)

        assert len(leases) == 3
        assert not full.grants
        assert full.state is ReceiveState.IN_FLIGHT_CAP
        assert len(await taken(store, group, max_count=10)) == 2

    async def test_an_ended_lease_frees_its_place(self, store: LeaseStore, clock: ManualClock) -> None:
        """A dead consumer does not block a group for ever."""
        group = workers(max_in_flight=2)
        await opened(store, group, queues(10))
        await taken(store, group)
        clock.advance(group.visibility)

        assert len(await taken(store, group)) == 2

    async def test_at_the_cap_the_next_instant_is_a_leases_end_not_a_message_that_is_ready(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Who waits would try again and again for what the cap forbids."""
        group = workers(max_in_flight=1)
        await opened(store, group, queues(2))
        first = await one(store, group)
        await nack(store, group, first, delay=5 * SECOND)
        await one(store, group)
        clock.advance(10)

        full = await ask(store, group)

        assert full.state is ReceiveState.IN_FLIGHT_CAP
        assert full.next_at == clock.now + group.visibility - 10 * SECOND

    async def test_without_tokens_the_next_instant_is_when_they_come(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Not when a message was ready: that is over, and who waits would spin."""
        group = workers(rate_limit=RateLimit(rate=0.1, burst=2))
        await opened(store, group, queues(2))
        for lease in await taken(store, group):
            await nack(store, group, lease)
        clock.advance(3)

        limited = await ask(store, group)

        assert limited.state is ReceiveState.RATE_LIMITED
        assert limited.next_at == clock.now + 7 * SECOND
        clock.advance(7)
        assert len(await taken(store, group)) == 1

    async def test_tokens_of_what_was_filtered_or_given_back_are_refunded(self, store: LeaseStore) -> None:
        """A rate limit counts delivered messages."""
        group = workers(rate_limit=RateLimit(rate=1, burst=10), tags=frozenset("a"))
        await opened(store, group, queues(30))
        await placed(store, group, await ask(store, group, max_count=10), {0: None, 4: None}, after=6)

        assert len(await taken(store, group)) == 8
