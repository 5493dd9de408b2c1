"""Lease store contract, message mode: repeated receives, and responses that were not delivered."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.core.errors import AttemptMismatch
from mqgate.core.lease import PullReport, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import QUEUE, ack, ask, extend, nack, opened, position, settled
from mqgate.testing.message_leasing import HOUR, deliveries, lag, one, places, returned, singles, taken, workers
from mqgate.testing.samples import queues


class MessageAttemptContract:
    async def test_a_repeated_attempt_returns_the_same_leases_and_does_not_count(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """This must hold for several queues and for redeliveries."""
        group = workers()
        await opened(store, group, queues(3, 2))
        for lease in (await taken(store, group, max_count=3))[:1]:
            await nack(store, group, lease)
        first = await ask(store, group, max_count=10, attempt="a1")
        clock.advance(10)

        again = await ask(store, group, max_count=10, attempt="a1")

        assert len(singles(first)) == 3
        assert [grant._replace(serve=1) for grant in again.grants] == list(first.grants)
        assert not (await ask(store, group)).grants

    @pytest.mark.parametrize(
        "change", [{"max_count": 5}, {"visibility": timedelta(minutes=1)}, {"max_count": 5, "bounds": queues(9, 1)}]
    )
    async def test_an_attempt_with_different_parameters_is_rejected_without_effect(
        self, store: LeaseStore, change: dict[str, object]
    ) -> None:
        """This is a bug in the client. Not even its carried acks may apply."""
        group = workers()
        await opened(store, group, queues(9))
        carried = await one(store, group)
        (first,) = (await ask(store, group, max_count=4, attempt="a1")).grants
        before = await position(store, group)
        acks = [Settlement(verb=Verb.ACK, lease=carried)]

        with pytest.raises(AttemptMismatch):
            await ask(store, group, attempt="a1", carrying=acks, **{"max_count": 4, **change})  # type: ignore[arg-type]

        assert await position(store, group) == before
        assert await ack(store, group, carried) is SettlementOutcome.APPLIED
        assert await ack(store, group, first.lease._replace(next=first.lease.start + 1)) is SettlementOutcome.APPLIED

    async def test_an_attempt_with_default_visibility_survives_a_change_of_the_default(self, store: LeaseStore) -> None:
        """The request is the same. A change by an operator is not an error of the client."""
        group = workers()
        await opened(store, group, queues(9))
        first = await taken(store, group, max_count=4, attempt="a1")

        changed = replace(group, visibility=2 * group.visibility)
        again = await taken(store, changed, max_count=4, attempt="a1")

        assert again == first
        with pytest.raises(AttemptMismatch):
            await ask(store, changed, max_count=4, attempt="a1", visibility=changed.visibility)

    @pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK])
    async def test_an_attempt_is_a_new_receive_after_one_message_was_settled(
        self, store: LeaseStore, verb: Verb
    ) -> None:
        """A settled lease must not be returned as if it were current."""
        group = workers()
        await opened(store, group, queues(9))
        first = await taken(store, group, max_count=2, attempt="a1")
        await settled(store, group, verb, first[0], delay=HOUR)

        again = await taken(store, group, max_count=2, attempt="a1")

        assert places(again) == [(QUEUE, 2), (QUEUE, 3)]

    async def test_a_reused_attempt_id_returns_its_newest_leases(self, store: LeaseStore) -> None:
        """This must hold even if all of it happens within one tick of the clock of the store."""
        group = workers()
        await opened(store, group, queues(9))
        for lease in await taken(store, group, max_count=2, attempt="a1"):
            await ack(store, group, lease)
        second = await taken(store, group, max_count=2, attempt="a1")

        third = await taken(store, group, max_count=2, attempt="a1")

        assert third == second

    async def test_an_attempt_is_a_new_receive_after_a_lease_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """An expired lease is a failed delivery, also if the same client repeats the attempt."""
        group = workers()
        await opened(store, group, queues(1))
        await taken(store, group, attempt="a1")
        clock.advance(group.visibility)

        assert await deliveries(store, group, attempt="a1") == [2]

    async def test_an_attempt_returns_its_extended_lease(self, store: LeaseStore, clock: ManualClock) -> None:
        """An extend is not the end of a lease."""
        group = workers()
        await opened(store, group, queues(2))
        first = await taken(store, group, max_count=1, attempt="a1")
        await extend(store, group, first[0], timedelta(minutes=5))

        again = await ask(store, group, max_count=1, attempt="a1")

        assert singles(again) == first
        assert again.grants[0].leased_until == clock.now + timedelta(minutes=5)

    async def test_a_repeated_attempt_still_records_new_bounds(self, store: LeaseStore) -> None:
        """Bounds are reported once, also with a request that is served from an existing lease."""
        group = workers()
        await opened(store, group, queues(1))
        first = await taken(store, group, attempt="a1")

        repeated = await taken(store, group, attempt="a1", bounds=queues(2))

        assert repeated == first
        assert places(await taken(store, group)) == [(QUEUE, 1)]

    @pytest.mark.parametrize("first", [0, 1])
    async def test_a_lease_is_released_when_all_of_its_serves_were_returned(
        self, store: LeaseStore, first: int
    ) -> None:
        """The reports may arrive in any order."""
        group = workers()
        await opened(store, group, queues(2))
        serves = [(await ask(store, group, attempt="a1")).grants for _ in range(2)]

        await returned(store, group, serves[first])
        await returned(store, group, serves[first])
        held = await lag(store, group)
        await returned(store, group, serves[1 - first])

        assert held == (0, 2, 0), "the other response may have arrived"
        assert await lag(store, group) == (2, 0, 0)
        assert await deliveries(store, group) == [1]

    async def test_a_serve_with_nothing_left_counts_as_returned(self, store: LeaseStore) -> None:
        """The report of the last serve applies. If its response fails too, the messages are released."""
        group = workers()
        await opened(store, group, queues(2))
        serves = [(await ask(store, group, attempt="a1")).grants[0] for _ in range(2)]

        left = await store.report_pull(group, [PullReport(serves[0], 1)])
        await returned(store, group, [serves[1]])

        assert list(left) == [frozenset()]
        assert await lag(store, group) == (2, 0, 0)


class MessagePullReportContract:
    async def test_undelivered_messages_are_ready_at_once_and_not_counted(self, store: LeaseStore) -> None:
        """A client that disconnects must not use up attempts, even if other receives happened meanwhile."""
        group = workers(max_attempts=2)
        await opened(store, group, queues(4))

        for max_count in (1, 2, 3, 4, 1, 1):
            await returned(store, group, (await ask(store, group, max_count=max_count)).grants)
        first = await ask(store, group, max_count=2)
        second = await ask(store, group, max_count=2)
        await returned(store, group, first.grants)
        again = await ask(store, group, max_count=4)

        assert [grant.delivery for grant in again.grants] == [1]
        assert places(singles(again)) == places(singles(first))
        assert [grant.delivery for grant in second.grants] == [1]

    async def test_a_short_pull_releases_the_rest(self, store: LeaseStore) -> None:
        """Messages that did not fit into the response must be available to the next receive."""
        group = workers()
        await opened(store, group, queues(9))
        acquired = await ask(store, group, max_count=6)

        stay = await store.report_pull(group, [PullReport(acquired.grants[0], 2)])

        assert list(stay) == [frozenset({0, 1})]
        assert await lag(store, group) == (7, 2, 0)
        assert places(await taken(store, group, max_count=1)) == [(QUEUE, 2)]

    async def test_releases_in_any_order_never_grant_a_message_twice(self, store: LeaseStore) -> None:
        """Three consumers disconnect, and each message must be granted once."""
        group = workers()
        await opened(store, group, queues(3))
        grants = [(await ask(store, group, max_count=1)).grants for _ in range(3)]

        for number in (0, 2, 1):
            await returned(store, group, grants[number])
        first = (await ask(store, group, max_count=1)).grants
        await returned(store, group, first)

        assert sorted(places(await taken(store, group))) == [(QUEUE, 0), (QUEUE, 1), (QUEUE, 2)]
        assert await lag(store, group) == (0, 3, 0)

    async def test_a_late_release_changes_nothing(self, store: LeaseStore, clock: ManualClock) -> None:
        """It must not affect the lease of another consumer, or a settled message."""
        group = workers()
        await opened(store, group, queues(3))
        acquired = await ask(store, group)
        leases = singles(acquired)
        await ack(store, group, leases[0])
        await nack(store, group, leases[1], delay=HOUR)
        clock.advance(group.visibility)
        await taken(store, group)
        before = await position(store, group)

        await returned(store, group, acquired.grants)

        assert await position(store, group) == before

    async def test_a_released_message_after_a_late_extend_is_granted_once(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The message was ready again, leased by the extend and then released."""
        group = workers()
        await opened(store, group, queues(1))
        acquired = await ask(store, group)
        clock.advance(group.visibility)
        assert await lag(store, group) == (1, 0, 0)
        assert await extend(store, group, singles(acquired)[0], HOUR) is SettlementOutcome.LATE_APPLIED

        await returned(store, group, acquired.grants)

        assert await lag(store, group) == (1, 0, 0)
        assert len(await taken(store, group)) == 1
