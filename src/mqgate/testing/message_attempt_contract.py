"""Lease store contract, message mode: a receive that is repeated, and one whose messages nobody took."""

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
    async def test_the_same_attempt_gets_the_same_leases_uncounted(self, store: LeaseStore, clock: ManualClock) -> None:
        """Over several queues and redeliveries: the same messages, the same receipts, no new delivery."""
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
    async def test_an_attempt_with_other_parameters_is_refused_and_changes_nothing(
        self, store: LeaseStore, change: dict[str, object]
    ) -> None:
        """It is a bug of the client; not even the acks it carried are applied."""
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

    async def test_an_attempt_that_leaves_the_visibility_to_the_group_survives_a_change_of_it(
        self, store: LeaseStore
    ) -> None:
        """The request is the same, the lease is untouched: an operator's change is no mistake of the client."""
        group = workers()
        await opened(store, group, queues(9))
        first = await taken(store, group, max_count=4, attempt="a1")

        changed = replace(group, visibility=2 * group.visibility)
        again = await taken(store, changed, max_count=4, attempt="a1")

        assert again == first
        with pytest.raises(AttemptMismatch):
            await ask(store, changed, max_count=4, attempt="a1", visibility=changed.visibility)

    @pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK])
    async def test_when_one_message_was_settled_the_attempt_is_a_new_receive(
        self, store: LeaseStore, verb: Verb
    ) -> None:
        """`While nothing changed`: a settled lease is not handed out again as if it lived."""
        group = workers()
        await opened(store, group, queues(9))
        first = await taken(store, group, max_count=2, attempt="a1")
        await settled(store, group, verb, first[0], delay=HOUR)

        again = await taken(store, group, max_count=2, attempt="a1")

        assert places(again) == [(QUEUE, 2), (QUEUE, 3)]

    async def test_an_attempt_used_anew_is_repeated_as_well(self, store: LeaseStore) -> None:
        """Its newest leases count, also when all of it happened within one instant of the store's clock."""
        group = workers()
        await opened(store, group, queues(9))
        for lease in await taken(store, group, max_count=2, attempt="a1"):
            await ack(store, group, lease)
        second = await taken(store, group, max_count=2, attempt="a1")

        third = await taken(store, group, max_count=2, attempt="a1")

        assert third == second

    async def test_after_a_lease_ended_the_attempt_is_a_new_receive(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """An ended lease is a failed delivery, also when the same client asks again."""
        group = workers()
        await opened(store, group, queues(1))
        await taken(store, group, attempt="a1")
        clock.advance(group.visibility)

        assert await deliveries(store, group, attempt="a1") == [2]

    async def test_an_extended_lease_is_still_the_attempts(self, store: LeaseStore, clock: ManualClock) -> None:
        """Extending is not settling."""
        group = workers()
        await opened(store, group, queues(2))
        first = await taken(store, group, max_count=1, attempt="a1")
        await extend(store, group, first[0], timedelta(minutes=5))

        again = await ask(store, group, max_count=1, attempt="a1")

        assert singles(again) == first
        assert again.grants[0].leased_until == clock.now + timedelta(minutes=5)

    async def test_a_repeat_does_not_lose_what_the_log_told_with_it(self, store: LeaseStore) -> None:
        """Ends of queues are told once: a step that answers from memory must still take note of them."""
        group = workers()
        await opened(store, group, queues(1))
        first = await taken(store, group, attempt="a1")

        repeated = await taken(store, group, attempt="a1", bounds=queues(2))

        assert repeated == first
        assert places(await taken(store, group)) == [(QUEUE, 1)]

    @pytest.mark.parametrize("first", [0, 1])
    async def test_what_was_served_twice_goes_back_when_both_answers_broke(self, store: LeaseStore, first: int) -> None:
        """In whatever order they break: the one that reached the store last may be the one that was sent first."""
        group = workers()
        await opened(store, group, queues(2))
        serves = [(await ask(store, group, attempt="a1")).grants for _ in range(2)]

        await returned(store, group, serves[first])
        await returned(store, group, serves[first])
        held = await lag(store, group)
        await returned(store, group, serves[1 - first])

        assert held == (0, 2, 0), "the other answer may have arrived"
        assert await lag(store, group) == (2, 0, 0)
        assert await deliveries(store, group) == [1]

    async def test_an_answer_that_was_left_without_counts_as_broken(self, store: LeaseStore) -> None:
        """The last who was served places the messages; if that one breaks too, they are nobody's."""
        group = workers()
        await opened(store, group, queues(2))
        serves = [(await ask(store, group, attempt="a1")).grants[0] for _ in range(2)]

        left = await store.report_pull(group, [PullReport(serves[0], 1)])
        await returned(store, group, [serves[1]])

        assert list(left) == [frozenset()]
        assert await lag(store, group) == (2, 0, 0)


class PlaceMessageContract:
    async def test_what_nobody_took_is_ready_at_once_and_not_counted(self, store: LeaseStore) -> None:
        """A client that hung up costs no attempt, however often; also when others went on meanwhile."""
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

    async def test_a_short_pull_gives_the_rest_back(self, store: LeaseStore) -> None:
        """What the answer could not hold is not leased."""
        group = workers()
        await opened(store, group, queues(9))
        acquired = await ask(store, group, max_count=6)

        stay = await store.report_pull(group, [PullReport(acquired.grants[0], 2)])

        assert list(stay) == [frozenset({0, 1})]
        assert await lag(store, group) == (7, 2, 0)
        assert places(await taken(store, group, max_count=1)) == [(QUEUE, 2)]

    async def test_hand_backs_in_any_order_never_grant_a_message_twice(self, store: LeaseStore) -> None:
        """Three consumers hang up, the first of them first: each message is there once."""
        group = workers()
        await opened(store, group, queues(3))
        grants = [(await ask(store, group, max_count=1)).grants for _ in range(3)]

        for number in (0, 2, 1):
            await returned(store, group, grants[number])
        first = (await ask(store, group, max_count=1)).grants
        await returned(store, group, first)

        assert sorted(places(await taken(store, group))) == [(QUEUE, 0), (QUEUE, 1), (QUEUE, 2)]
        assert await lag(store, group) == (0, 3, 0)

    async def test_a_hand_back_that_comes_too_late_changes_nothing(self, store: LeaseStore, clock: ManualClock) -> None:
        """Neither another's lease nor what was settled."""
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

    async def test_a_late_extended_message_that_nobody_took_is_there_once(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """It had come back, was held again, then given back: one message, one lease."""
        group = workers()
        await opened(store, group, queues(1))
        acquired = await ask(store, group)
        clock.advance(group.visibility)
        assert await lag(store, group) == (1, 0, 0)
        assert await extend(store, group, singles(acquired)[0], HOUR) is SettlementOutcome.LATE_APPLIED

        await returned(store, group, acquired.grants)

        assert await lag(store, group) == (1, 0, 0)
        assert len(await taken(store, group)) == 1
