"""Lease store contract, message mode: redelivery, exhausted messages, in-flight cap and rate limit."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import RateLimit
from mqgate.core.lease import ReceiveState, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import QUEUE, ack, ask, committed, exhausted, nack, opened, position, settled
from mqgate.testing.message_leasing import (
    HOUR,
    SECOND,
    deliveries,
    lag,
    one,
    places,
    report_pulled,
    singles,
    taken,
    workers,
)
from mqgate.testing.samples import queues


class RetryContract:
    async def test_an_expired_last_lease_of_a_deleted_message_is_reported_as_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """There is no dead letter to write, but the loss must be reported."""
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

    async def test_a_nacked_message_is_granted_exactly_after_its_delay(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Invariant 18, to the millisecond. The instant is returned as next_at."""
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

    async def test_the_backoff_of_an_expired_lease_counts_from_its_deadline(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """It must not depend on when the store notices the expiry."""
        group = workers(backoff=Backoff(steps=(10 * SECOND,)))
        await opened(store, group, queues(1))
        await one(store, group)
        clock.advance(group.visibility + 10 * SECOND)

        assert await deliveries(store, group) == [2]

    async def test_a_list_of_delays_has_no_jitter_and_its_last_entry_repeats(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The operator chose these delays."""
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

    async def test_an_exponential_backoff_never_exceeds_its_maximum(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Operators rely on the maximum, also with jitter."""
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

    async def test_redeliveries_are_granted_before_new_messages(self, store: LeaseStore, clock: ManualClock) -> None:
        """A backlog must not starve failed messages."""
        group = workers()
        await opened(store, group, queues(50))
        await nack(store, group, await one(store, group), delay=SECOND)
        clock.advance(1)

        assert places(await taken(store, group, max_count=2)) == [(QUEUE, 0), (QUEUE, 1)]


class DeadMessageContract:
    async def test_the_last_nack_exhausts_the_message_at_once(self, store: LeaseStore, clock: ManualClock) -> None:
        """The dead letter needs the deliveries, the times and the last reason."""
        group = workers(max_attempts=2)
        await opened(store, group, queues(1))
        first_at = clock.now
        await nack(store, group, await one(store, group), reason="bad day")
        clock.advance(5)
        lease = await one(store, group)

        result = await settled(store, group, Verb.NACK, lease, reason="still bad")

        assert result.outcome is SettlementOutcome.APPLIED
        assert result.exhausted is not None
        assert (result.exhausted.lease.queue, result.exhausted.lease.start) == (QUEUE, 0)
        assert (result.exhausted.deliveries, result.exhausted.reason) == (2, "still bad")
        assert (result.exhausted.first_at, result.exhausted.last_at) == (first_at, clock.now)

    @pytest.mark.parametrize("call", ["receive", "paused receive", "positions"])
    async def test_the_expiry_of_the_last_lease_exhausts_the_message(
        self, store: LeaseStore, clock: ManualClock, call: str
    ) -> None:
        """Any later call must find it, and its last receipt is lost."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(group.visibility)

        if call == "positions":
            found = await exhausted(store, group)
        else:
            found = (await ask(store, workers(max_attempts=1, is_paused="paused" in call))).exhausted

        assert [(message.lease.start, message.deliveries) for message in found] == [(0, 1)]
        assert found[0].last_at == clock.now
        assert await ack(store, group, lease) is SettlementOutcome.LOST

    async def test_an_exhausted_message_is_reported_until_it_is_settled_dead_once(self, store: LeaseStore) -> None:
        """A gateway may crash before it stores the dead letter, and two gateways may try."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(2))
        first, second = await taken(store, group)
        await ack(store, group, second)
        await nack(store, group, first)
        (named,) = await exhausted(store, group)
        assert not (await ask(store, group)).grants
        assert await committed(store, group) == 0

        is_settled = [await store.settle_dead(group, named) for _ in range(3)]

        assert is_settled == [True, False, False]
        assert await committed(store, group) == 2
        assert await lag(store, group) == (0, 0, 0)
        assert not await exhausted(store, group)

    async def test_an_exhausted_message_deleted_by_retention_is_expired(self, store: LeaseStore) -> None:
        """Every message must be counted exactly once, as a dead letter or as expired."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(2))
        first, _ = await taken(store, group)
        await nack(store, group, first)
        (named,) = await exhausted(store, group)

        is_settled = [await store.settle_dead(group, named, is_expired=True) for _ in range(2)]

        assert is_settled == [True, False]
        assert (await position(store, group)).expired == 1

    async def test_deliveries_never_exceed_max_attempts(self, store: LeaseStore, clock: ManualClock) -> None:
        """Invariant 17, with nacks and expired leases in turn."""
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

    @pytest.mark.parametrize("call", ["receive", "paused receive", "positions"])
    async def test_a_lowered_limit_counts_earlier_deliveries(
        self, store: LeaseStore, clock: ManualClock, call: str
    ) -> None:
        """Invariant 17 applies with the current limit, also to messages that already exceed it."""
        group = workers(max_attempts=5)
        await opened(store, group, queues(1))
        for reason in ("odd", "bad", "worse"):
            await nack(store, group, await one(store, group), reason=reason)
        lowered = replace(group, max_attempts=2, is_paused="paused" in call)

        received = None if call == "positions" else await ask(store, lowered, max_count=1)
        found = await exhausted(store, lowered)

        assert received is None or not received.grants
        assert received is None or list(received.exhausted) == list(found)
        assert [(message.lease.start, message.deliveries, message.reason) for message in found] == [(0, 3, "worse")]
        assert found[0].last_at == clock.now
        assert await store.settle_dead(lowered, found[0])
        assert await lag(store, lowered) == (0, 0, 0)
        assert await committed(store, lowered) == 1

    async def test_a_lowered_limit_does_not_end_leases_or_delays(self, store: LeaseStore, clock: ManualClock) -> None:
        """A consumer may still succeed, and a delayed message is not exhausted early."""
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
        assert [message.lease.start for message in (await ask(store, lowered)).exhausted] == [1]
        assert await ack(store, lowered, delayed) is SettlementOutcome.LOST


class CapContract:
    async def test_at_the_cap_nothing_is_granted_until_something_is_settled(self, store: LeaseStore) -> None:
        """The in-flight cap limits the leases of all consumers of a group."""
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

    async def test_an_expired_lease_does_not_count_towards_the_cap(self, store: LeaseStore, clock: ManualClock) -> None:
        """A crashed consumer must not block a group forever."""
        group = workers(max_in_flight=2)
        await opened(store, group, queues(10))
        await taken(store, group)
        clock.advance(group.visibility)

        assert len(await taken(store, group)) == 2

    async def test_at_the_cap_next_at_is_the_expiry_of_a_lease(self, store: LeaseStore, clock: ManualClock) -> None:
        """A parked receive must not retry in a loop for messages that the cap forbids."""
        group = workers(max_in_flight=1)
        await opened(store, group, queues(2))
        first = await one(store, group)
        await nack(store, group, first, delay=5 * SECOND)
        await one(store, group)
        clock.advance(10)

        full = await ask(store, group)

        assert full.state is ReceiveState.IN_FLIGHT_CAP
        assert full.next_at == clock.now + group.visibility - 10 * SECOND

    async def test_without_tokens_next_at_is_the_next_token(self, store: LeaseStore, clock: ManualClock) -> None:
        """A parked receive must not retry in a loop for a message that is already ready."""
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

    async def test_tokens_of_filtered_and_released_messages_are_refunded(self, store: LeaseStore) -> None:
        """A rate limit counts delivered messages."""
        group = workers(rate_limit=RateLimit(rate=1, burst=10), tags=frozenset("a"))
        await opened(store, group, queues(30))
        await report_pulled(store, group, await ask(store, group, max_count=10), {0: None, 4: None}, after=6)

        assert len(await taken(store, group)) == 8
