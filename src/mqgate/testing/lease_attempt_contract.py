"""Lease store contract: repeated receives, and pulls that found less than was granted."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import RateLimit
from mqgate.core.errors import AttemptMismatch
from mqgate.core.lease import ReceiveState, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import (
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
    report_short_pull,
)
from mqgate.testing.samples import a_group, queues


class AttemptContract:
    async def test_a_repeated_attempt_returns_the_same_lease_and_does_not_count(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A client that did not get the response repeats the receive and must lose nothing."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        first = await granted(store, group, max_count=4, attempt="a1")
        clock.advance(10)

        again = await granted(store, group, max_count=4, attempt="a1")

        assert again.lease == first.lease
        assert (again.delivery, again.leased_until) == (1, first.leased_until)
        assert (await position(store, group)).attempts == 1

    async def test_another_attempt_is_granted_another_queue(self, store: LeaseStore) -> None:
        """Two consumers must not share a lease."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        first = await granted(store, group, attempt="a1")

        other = await granted(store, group, attempt="a2")

        assert {first.lease.queue, other.lease.queue} == {QUEUE, OTHER}

    @pytest.mark.parametrize(
        "change", [{"max_count": 5}, {"visibility": timedelta(minutes=1)}, {"max_count": 5, "bounds": queues(9, 5, 1)}]
    )
    async def test_an_attempt_with_different_parameters_is_rejected_without_effect(
        self, store: LeaseStore, change: dict[str, object]
    ) -> None:
        """This is a bug in the client, and a response for other parameters would hide it."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        carried = await granted(store, group, max_count=4)
        first = await granted(store, group, max_count=4, attempt="a1")
        before = await positions(store, group)
        acks = [Settlement(verb=Verb.ACK, lease=carried.lease)]

        with pytest.raises(AttemptMismatch):
            await ask(store, group, attempt="a1", carrying=acks, **{"max_count": 4, **change})  # type: ignore[arg-type]

        assert await positions(store, group) == before
        assert await ack(store, group, first.lease) is SettlementOutcome.APPLIED
        assert await ack(store, group, carried.lease) is SettlementOutcome.APPLIED

    async def test_a_client_whose_first_attempt_was_rejected_is_listed_after_its_next_receive(
        self, store: LeaseStore
    ) -> None:
        """A rejected request has no effect, so it must not count as the record of its client."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        await granted(store, group, polled_by="ada", attempt="a1")
        with pytest.raises(AttemptMismatch):
            await ask(store, group, polled_by="ben", attempt="a1", max_count=5)

        await granted(store, group, polled_by="ben")

        assert {client.name for client in await store.clients(group.name)} == {"ada", "ben"}

    async def test_an_attempt_with_default_visibility_survives_a_change_of_the_default(self, store: LeaseStore) -> None:
        """The request is the same. A change by an operator is not an error of the client."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, max_count=4, attempt="a1")

        changed = replace(group, visibility=2 * group.visibility)
        again = await granted(store, changed, max_count=4, attempt="a1")

        assert again.lease == first.lease
        with pytest.raises(AttemptMismatch):
            await ask(store, changed, max_count=4, attempt="a1", visibility=changed.visibility)

    async def test_an_attempt_refers_to_its_newest_lease(self, store: LeaseStore, clock: ManualClock) -> None:
        """An earlier lease of the attempt that was extended late must not be returned."""
        group = a_group(backoff=Backoff(steps=(timedelta(hours=1),)))
        await opened(store, group, queues(9, 5))
        first = await granted(store, group, max_count=4, attempt="a1")
        clock.advance(31)
        second = await granted(store, group, max_count=4, attempt="a1")
        assert await extend(store, group, first.lease, timedelta(seconds=30)) is SettlementOutcome.LATE_APPLIED
        assert await ack(store, group, second.lease) is SettlementOutcome.APPLIED

        third = await granted(store, group, max_count=4, attempt="a1")

        assert [grant.lease.queue for grant in (first, second, third)] == [QUEUE, OTHER, OTHER]
        assert third.serve == 1

    @pytest.mark.parametrize("verb", ["ack", "nack"])
    async def test_an_attempt_is_a_new_receive_after_its_lease_was_settled(self, store: LeaseStore, verb: str) -> None:
        """A settled lease must not be returned as if it were current."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, max_count=4, attempt="a1")
        await (ack if verb == "ack" else nack)(store, group, first.lease)

        again = await granted(store, group, max_count=4, attempt="a1")

        assert again.lease.epoch > first.lease.epoch
        assert (again.lease.start, again.delivery) == ((4, 1) if verb == "ack" else (0, 2))

    async def test_an_attempt_is_a_new_receive_after_its_lease_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """An expired lease is a failed delivery, also if the same client repeats the attempt."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, attempt="a1")
        clock.advance(group.visibility)

        again = await granted(store, group, attempt="a1")

        assert again.lease.epoch > first.lease.epoch
        assert again.delivery == 2

    async def test_an_attempt_repeats_its_second_lease_after_the_first_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Otherwise one client would lease one queue after another."""
        group = a_group(visibility=timedelta(seconds=5))
        await opened(store, group, queues(9))
        await granted(store, group, attempt="a1")
        clock.advance(group.visibility)
        await opened(store, group, queues(9, 50, 8))
        second = await granted(store, group, attempt="a1")
        assert second.lease.queue == OTHER

        repeated = await granted(store, group, attempt="a1")

        assert repeated.lease == second.lease

    async def test_an_attempt_returns_its_extended_lease(self, store: LeaseStore, clock: ManualClock) -> None:
        """An extend is not the end of a lease. The repeat must return the new deadline."""
        group = a_group()
        await opened(store, group, queues(9, 5))
        first = await granted(store, group, attempt="a1")
        await extend(store, group, first.lease, timedelta(minutes=5))

        again = await granted(store, group, attempt="a1")

        assert again.lease == first.lease
        assert again.leased_until == clock.now + timedelta(minutes=5)

    async def test_releasing_an_undelivered_response_keeps_a_later_serve(self, store: LeaseStore) -> None:
        """The first connection broke and the repeat was delivered, so its lease must stay."""
        group = a_group()
        await opened(store, group, queues(9))
        broken = await granted(store, group, max_count=4, attempt="a1")
        served = await granted(store, group, max_count=4, attempt="a1")

        await report_short_pull(store, group, broken, after=0)

        assert not (await ask(store, group)).grants
        assert await ack(store, group, served.lease) is SettlementOutcome.APPLIED
        assert await committed(store, group) == 4

    @pytest.mark.parametrize("first", [0, 1])
    async def test_a_lease_is_released_when_all_of_its_serves_were_returned(
        self, store: LeaseStore, first: int
    ) -> None:
        """The reports may arrive in any order."""
        group = a_group()
        await opened(store, group, queues(9))
        serves = [await granted(store, group, max_count=4, attempt="a1") for _ in range(2)]

        await report_short_pull(store, group, serves[first], after=0)
        await report_short_pull(store, group, serves[first], after=0)
        held = await ask(store, group)
        await report_short_pull(store, group, serves[1 - first], after=0)

        assert not held.grants, "the other response may have arrived"
        assert (await granted(store, group)).delivery == 1


class PullReportContract:
    async def test_a_short_pull_releases_the_rest(self, store: LeaseStore) -> None:
        """Messages that did not fit into the response must be available to the next receive."""
        group = a_group()
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=6)

        await report_short_pull(store, group, grant, after=2)

        held = await position(store, group)
        assert (held.leased, held.ready) == (2, 7)
        assert not (await ask(store, group)).grants
        assert await ack(store, group, grant.lease._replace(next=2)) is SettlementOutcome.APPLIED
        assert (await granted(store, group)).lease.start == 2

    async def test_an_empty_pull_releases_the_queue_and_does_not_count(self, store: LeaseStore) -> None:
        """Nothing was delivered, so no lease and no delivery may remain."""
        group = a_group(max_attempts=2)
        await opened(store, group, queues(9))

        for _ in range(5):
            await report_short_pull(store, group, await granted(store, group), after=0)

        assert (await position(store, group)).attempts == 0
        assert (await granted(store, group)).delivery == 1

    async def test_a_repeated_release_takes_back_one_delivery(self, store: LeaseStore) -> None:
        """A repeated report must not undo the delivery of another consumer."""
        group = a_group()
        await opened(store, group, queues(9))
        await nack(store, group, (await granted(store, group)).lease)
        grant = await granted(store, group)

        await report_short_pull(store, group, grant, after=0)
        await report_short_pull(store, group, grant, after=0)

        assert (await granted(store, group)).delivery == 2

    async def test_a_released_lease_can_still_be_nacked(self, store: LeaseStore, clock: ManualClock) -> None:
        """The connection seemed broken, but the response had arrived."""
        group = a_group(backoff=Backoff(steps=(timedelta(seconds=2), timedelta(hours=1))))
        await opened(store, group, queues(9))
        first = await granted(store, group, max_count=4, attempt="a1")
        await report_short_pull(store, group, first, after=0)

        outcome = await nack(store, group, first.lease)
        early = await ask(store, group)
        clock.advance(2)

        assert outcome is SettlementOutcome.LATE_APPLIED
        assert not early.grants
        assert (await ask(store, group)).grants

    async def test_a_late_release_changes_nothing(self, store: LeaseStore, clock: ManualClock) -> None:
        """It must not affect the lease of another consumer, or a settled message."""
        group = a_group()
        await opened(store, group, queues(9, 5, 3))
        slow, acked, nacked = [await granted(store, group, max_count=2) for _ in range(3)]
        await ack(store, group, acked.lease)
        await nack(store, group, nacked.lease, delay=timedelta(minutes=1))
        clock.advance(group.visibility)
        await granted(store, group, max_count=1, attempt="next")
        before = await positions(store, group)

        for grant in (slow, acked, nacked):
            await report_short_pull(store, group, grant, after=grant.lease.start)

        assert await positions(store, group) == before

    async def test_tokens_of_released_messages_are_refunded(self, store: LeaseStore) -> None:
        """A rate limit counts delivered messages, not granted ones."""
        group = a_group(rate_limit=RateLimit(rate=1, burst=10))
        await opened(store, group, queues(30, 20, 10))
        short = await granted(store, group, max_count=10)
        spent = await ask(store, group)

        await report_short_pull(store, group, short, after=4)
        refunded = await granted(store, group, max_count=10)

        assert spent.state is ReceiveState.RATE_LIMITED
        assert refunded.lease.next - refunded.lease.start == 6

    async def test_a_repeated_release_refunds_once(self, store: LeaseStore) -> None:
        """A report that is repeated after a lost reply must not create tokens."""
        group = a_group(rate_limit=RateLimit(rate=1, burst=10))
        await opened(store, group, queues(30, 20))
        short = await granted(store, group, max_count=10)

        for after in (4, 4, 0, 0):
            await report_short_pull(store, group, short, after=after)

        refunded = await granted(store, group, max_count=30)
        assert refunded.lease.next - refunded.lease.start == 10
