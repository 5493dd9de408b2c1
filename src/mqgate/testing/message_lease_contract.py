"""Lease store contract, message mode: single messages are leased, settled, failed, ordered and filtered."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from mqgate.core.backoff import NO_BACKOFF, Backoff
from mqgate.core.entries import Group, Mode, RateLimit
from mqgate.core.errors import AttemptMismatch
from mqgate.core.lease import Acquire, Acquired, Grant, Head, Lease, Outcome, Placement, Settlement, State, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import OTHER, QUEUE, ack, ask, committed, doomed, extend, nack, opened, position, settled
from mqgate.testing.samples import a_group, queues

__all__ = ["MessageLeaseContract"]

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def workers(**changes: Any) -> Group:
    """A message-mode group; a failed message is ready again at once unless told."""
    return a_group(mode=Mode.MESSAGE, **{"backoff": NO_BACKOFF, **changes})


def singles(acquired: Acquired) -> list[Lease]:
    """The lease of every single message granted, as receipts carry them."""
    return [
        grant.lease._replace(start=offset, next=offset + 1)
        for grant in acquired.grants
        for offset in range(grant.lease.start, grant.lease.next)
    ]


def places(leases: Iterable[Lease]) -> list[tuple[str, int]]:
    return [(lease.queue, lease.start) for lease in leases]


async def taken(store: LeaseStore, group: Group, **wish: Any) -> list[Lease]:
    return singles(await ask(store, group, **wish))


async def one(store: LeaseStore, group: Group, **wish: Any) -> Lease:
    """A receive of one message that must come."""
    (lease,) = await taken(store, group, most=1, **wish)
    return lease


async def deliveries(store: LeaseStore, group: Group, **wish: Any) -> list[int]:
    return [grant.delivery for grant in (await ask(store, group, **wish)).grants]


async def placed(
    store: LeaseStore,
    group: Group,
    acquired: Acquired,
    keys: Mapping[int, str | None],
    after: int | None = None,
) -> list[Lease]:
    """The pull found messages with these keys, and no others that are wanted; what stays granted."""
    stay = await store.place(
        group,
        [
            Placement(
                grant,
                grant.lease.next if after is None else after,
                {offset: key for offset, key in keys.items() if grant.lease.start <= offset < grant.lease.next},
            )
            for grant in acquired.grants
        ],
    )
    return [lease for lease in singles(acquired) if any(lease.start in some for some in stay) and lease.start in keys]


async def in_turn(store: LeaseStore, group: Group, keys: Mapping[int, str | None], **wish: Any) -> list[int]:
    """Receive and place in an ordered (or filtered) group: the offsets that are delivered."""
    return [lease.start for lease in await placed(store, group, await ask(store, group, **wish), keys)]


async def returned(store: LeaseStore, group: Group, grants: Sequence[Grant]) -> None:
    """Nobody was left to take them."""
    await store.place(group, [Placement(grant, grant.lease.start) for grant in grants])


async def lag(store: LeaseStore, group: Group, queue: str = QUEUE) -> tuple[int, int, int]:
    """Ready, leased, waiting."""
    found = await position(store, group, queue)
    return found.ready, found.leased, found.waiting


class GrantContract:
    async def test_no_message_is_granted_twice_at_once(self, store: LeaseStore) -> None:
        """Invariant 5, with as many consumers as there are: parallelism is unlimited, leases are exclusive."""
        group = workers()
        await opened(store, group, queues(10, 10))

        found = await asyncio.gather(*(taken(store, group, most=3) for _ in range(10)))

        granted = [place for leases in found for place in places(leases)]
        assert sorted(granted) == sorted((queue, offset) for queue in (QUEUE, OTHER) for offset in range(10))

    async def test_one_receive_takes_from_several_queues(self, store: LeaseStore) -> None:
        """A batch is filled from wherever messages are; the order of queues is no promise."""
        group = workers()
        await opened(store, group, queues(2, 3))

        leases = await taken(store, group, most=5)

        assert sorted(places(leases)) == [(QUEUE, 0), (QUEUE, 1), (OTHER, 0), (OTHER, 1), (OTHER, 2)]

    async def test_every_grant_is_a_new_epoch_and_a_counted_delivery(self, store: LeaseStore) -> None:
        """What a stale receipt carries is never current again."""
        group = workers()
        await opened(store, group, queues(1))
        epochs, counts = [], []

        for _ in range(3):
            (grant,) = (await ask(store, group)).grants
            epochs.append(grant.lease.epoch)
            counts.append(grant.delivery)
            await nack(store, group, grant.lease)

        assert counts == [1, 2, 3]
        assert epochs == sorted(set(epochs))

    async def test_committed_is_the_first_message_not_settled(self, store: LeaseStore) -> None:
        """Acks fill in behind; a gap holds committed, and closing it moves committed over all of them."""
        group = workers()
        await opened(store, group, queues(5))
        leases = await taken(store, group, most=4)

        seen = []
        for lease in (leases[1], leases[3], leases[0], leases[2]):
            await ack(store, group, lease)
            seen.append(await committed(store, group))

        assert seen == [0, 0, 2, 4]
        assert (await position(store, group)).cursor == 4

    async def test_the_state_of_a_group_is_made_once(self, store: LeaseStore) -> None:
        """Opening again moves nothing."""
        group = workers()
        assert await opened(store, group, queues(5))
        await ack(store, group, await one(store, group))

        assert not await opened(store, group, queues(5))

        assert await committed(store, group) == 1

    async def test_a_group_that_begins_later_skips_what_was_before(self, store: LeaseStore) -> None:
        """`latest`, or an instant, became offsets when the group was registered."""
        group = workers()
        await opened(store, group, queues(5), starts={QUEUE: 3})

        assert places(await taken(store, group)) == [(QUEUE, 3), (QUEUE, 4)]

    async def test_a_queue_that_comes_later_is_read_from_its_first_message(self, store: LeaseStore) -> None:
        """A topic that grows loses nothing."""
        group = workers()
        await opened(store, group, queues(0))

        assert places(await taken(store, group, heads=queues(0, (2, 4)))) == [(OTHER, 2), (OTHER, 3)]

    async def test_an_empty_group_says_ok_and_a_held_one_busy(self, store: LeaseStore) -> None:
        """Why an answer is empty: nothing there, or none of it grantable now."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)

        held = await ask(store, group)
        await ack(store, group, lease)
        done = await ask(store, group)

        assert (held.state, done.state) == (State.BUSY, State.OK)
        assert not held.grants
        assert not done.grants


class SettleMessageContract:
    async def test_each_message_of_a_batch_is_settled_on_its_own(self, store: LeaseStore) -> None:
        """One bad message does not hold the others."""
        group = workers()
        await opened(store, group, queues(3))
        first, second, third = await taken(store, group)

        outcomes = [
            await ack(store, group, first),
            await nack(store, group, second, delay=HOUR),
            await extend(store, group, third, HOUR),
        ]

        assert outcomes == [Outcome.APPLIED] * 3
        assert await lag(store, group) == (0, 1, 1)

    async def test_a_repeated_settlement_is_a_duplicate_and_another_verb_is_lost(self, store: LeaseStore) -> None:
        """Invariant 12: any number of repeats equals one."""
        group = workers()
        await opened(store, group, queues(2))
        acked, nacked = await taken(store, group)
        await ack(store, group, acked)
        await nack(store, group, nacked, delay=HOUR)
        before = await position(store, group)

        assert await ack(store, group, acked) is Outcome.DUPLICATE
        assert await nack(store, group, acked) is Outcome.LOST
        assert await extend(store, group, acked, HOUR) is Outcome.LOST
        assert await nack(store, group, nacked) is Outcome.DUPLICATE
        assert await ack(store, group, nacked) is Outcome.LOST
        assert await extend(store, group, nacked, HOUR) is Outcome.LOST
        assert await position(store, group) == before

    @pytest.mark.parametrize("verb", list(Verb))
    @pytest.mark.parametrize("is_noticed", [False, True], ids=["unnoticed", "noticed"])
    async def test_a_late_settlement_counts_until_somebody_else_gets_the_message(
        self, store: LeaseStore, clock: ManualClock, verb: Verb, is_noticed: bool
    ) -> None:
        """The work was done; doing it again would be waste. Whether the store saw the end yet makes no difference."""
        group = workers(backoff=Backoff(steps=(HOUR,)))
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(group.visibility)
        if is_noticed:
            assert await lag(store, group) == (0, 0, 1)

        outcome = (await settled(store, group, verb, lease, visibility=HOUR, delay=HOUR)).outcome

        assert outcome is Outcome.LATE_APPLIED
        expected = {Verb.ACK: (0, 0, 0), Verb.NACK: (0, 0, 1), Verb.EXTEND: (0, 1, 0)}
        assert await lag(store, group) == expected[verb]

    @pytest.mark.parametrize("verb", list(Verb))
    async def test_a_stale_receipt_is_inert(self, store: LeaseStore, clock: ManualClock, verb: Verb) -> None:
        """Invariants 6 and 16: after the next grant nothing of the one before applies."""
        group = workers()
        await opened(store, group, queues(1))
        slow = await one(store, group)
        clock.advance(group.visibility)
        quick = await one(store, group)
        before = await position(store, group)

        assert (await settled(store, group, verb, slow, visibility=HOUR)).outcome is Outcome.LOST
        assert await position(store, group) == before
        assert await ack(store, group, quick) is Outcome.APPLIED

    async def test_a_foreign_incarnation_is_gone(self, store: LeaseStore) -> None:
        """Lease state that was dropped and made anew does not know the receipts of before."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)
        await store.forget(group.name)
        await opened(store, group, queues(1))
        again = await one(store, group)

        assert await ack(store, group, lease) is Outcome.GONE
        assert await ack(store, group, again) is Outcome.APPLIED

    async def test_carried_acks_are_applied_before_the_choice(self, store: LeaseStore) -> None:
        """One round trip per turn of a worker: a place under the cap is free at once."""
        group = workers(max_in_flight=1)
        await opened(store, group, queues(2))
        lease = await one(store, group)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=lease)])

        assert [each.outcome for each in acquired.settled] == [Outcome.APPLIED]
        assert places(singles(acquired)) == [(QUEUE, 1)]

    async def test_the_last_ack_carried_leaves_nothing_to_wait_for(self, store: LeaseStore) -> None:
        """The answer's state is that after the acks it applied: nothing there, not busy."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)

        acquired = await ask(store, group, carrying=[Settlement(verb=Verb.ACK, lease=lease)])

        assert (acquired.state, list(acquired.grants)) == (State.OK, [])


class ExtendContract:
    async def test_only_the_extended_message_of_a_batch_is_held_longer(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A slow message keeps itself, not its neighbours."""
        group = workers()
        await opened(store, group, queues(3))
        leases = await taken(store, group)
        await extend(store, group, leases[1], timedelta(minutes=5))
        clock.advance(group.visibility)

        again = await taken(store, group)

        assert places(again) == [(QUEUE, 0), (QUEUE, 2)]
        assert await ack(store, group, leases[1]) is Outcome.APPLIED

    async def test_the_receipt_stays_valid_after_extends(self, store: LeaseStore, clock: ManualClock) -> None:
        """A worker extends as often as it needs, and acks with what it received."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)

        for _ in range(10):
            clock.advance(group.visibility - SECOND)
            assert await extend(store, group, lease, group.visibility) is Outcome.APPLIED

        assert await ack(store, group, lease) is Outcome.APPLIED

    async def test_extend_counts_from_now_and_says_until_when(self, store: LeaseStore, clock: ManualClock) -> None:
        """Also when that is sooner than before: a worker may give notice."""
        group = workers(visibility=HOUR)
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(10)

        answer = await settled(store, group, Verb.EXTEND, lease, visibility=5 * SECOND)
        clock.advance(5)

        assert answer.leased_until == clock.now
        assert await deliveries(store, group) == [2]

    async def test_twelve_hours_in_all_are_the_most(self, store: LeaseStore, clock: ManualClock) -> None:
        """A holder that lives for ever must not hold for ever; refused means untouched."""
        group = workers(visibility=6 * HOUR)
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(5 * HOUR)

        beyond = await settled(store, group, Verb.EXTEND, lease, visibility=7 * HOUR + timedelta(milliseconds=1))
        before = await position(store, group)
        exactly = await settled(store, group, Verb.EXTEND, lease, visibility=7 * HOUR)
        clock.advance(7 * HOUR - SECOND)
        still_held = await lag(store, group)
        clock.advance(SECOND)

        assert beyond.outcome is Outcome.INVALID
        assert beyond.error is not None
        assert before.leased == 1
        assert exactly.outcome is Outcome.APPLIED
        assert still_held == (0, 1, 0)
        assert await deliveries(store, group) == [2]


class RetryContract:
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
        assert early.state is State.BUSY
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
        group = workers(backoff=Backoff(initial=SECOND, factor=4, most=30 * SECOND, jitter=0.5), max_attempts=100)
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

        assert places(await taken(store, group, most=2)) == [(QUEUE, 0), (QUEUE, 1)]


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

        assert answer.outcome is Outcome.APPLIED
        assert answer.doomed is not None
        assert (answer.doomed.lease.queue, answer.doomed.lease.start) == (QUEUE, 0)
        assert (answer.doomed.deliveries, answer.doomed.reason) == (2, "still bad")
        assert (answer.doomed.first_at, answer.doomed.last_at) == (first_at, clock.now)

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
            found = await doomed(store, group)
        else:
            found = (await ask(store, workers(max_attempts=1, is_paused="paused" in look))).doomed

        assert [(each.lease.start, each.deliveries) for each in found] == [(0, 1)]
        assert found[0].last_at == clock.now
        assert await ack(store, group, lease) is Outcome.LOST

    async def test_a_doomed_message_is_named_until_it_is_buried_and_buried_once(self, store: LeaseStore) -> None:
        """A gateway that dies in between leaves the work to the next; only one of two counts the death."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(2))
        first, second = await taken(store, group)
        await ack(store, group, second)
        await nack(store, group, first)
        (named,) = await doomed(store, group)
        assert not (await ask(store, group)).grants
        assert await committed(store, group) == 0

        buried = [await store.bury(group, named) for _ in range(3)]

        assert buried == [True, False, False]
        assert await committed(store, group) == 2
        assert await lag(store, group) == (0, 0, 0)
        assert not await doomed(store, group)

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
        assert len(await doomed(store, group)) == 1


class CapContract:
    async def test_at_the_cap_nothing_is_granted_until_something_is_settled(self, store: LeaseStore) -> None:
        """The cap bounds what a group holds, over all its consumers."""
        group = workers(max_in_flight=3)
        await opened(store, group, queues(10))
        leases = await taken(store, group, most=10)

        full = await ask(store, group)
        await ack(store, group, leases[0])
        await nack(store, group, leases[1], delay=HOUR)

        assert len(leases) == 3
        assert not full.grants
        assert full.state is State.IN_FLIGHT_CAP
        assert len(await taken(store, group, most=10)) == 2

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

        assert full.state is State.IN_FLIGHT_CAP
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

        assert limited.state is State.RATE_LIMITED
        assert limited.next_at == clock.now + 7 * SECOND
        clock.advance(7)
        assert len(await taken(store, group)) == 1

    async def test_tokens_of_what_was_filtered_or_given_back_are_refunded(self, store: LeaseStore) -> None:
        """A rate limit counts delivered messages."""
        group = workers(rate_limit=RateLimit(rate=1, burst=10), tags=frozenset("a"))
        await opened(store, group, queues(30))
        await placed(store, group, await ask(store, group, most=10), {0: None, 4: None}, after=6)

        assert len(await taken(store, group)) == 8


class MessageAttemptContract:
    async def test_the_same_attempt_gets_the_same_leases_uncounted(self, store: LeaseStore, clock: ManualClock) -> None:
        """Over several queues and redeliveries: the same messages, the same receipts, no new delivery."""
        group = workers()
        await opened(store, group, queues(3, 2))
        for lease in (await taken(store, group, most=3))[:1]:
            await nack(store, group, lease)
        first = await ask(store, group, most=10, attempt="a1")
        clock.advance(10)

        again = await ask(store, group, most=10, attempt="a1")

        assert len(singles(first)) == 3
        assert [grant._replace(serve=1) for grant in again.grants] == list(first.grants)
        assert not (await ask(store, group)).grants

    @pytest.mark.parametrize("change", [{"most": 5}, {"visibility": timedelta(minutes=1)}])
    async def test_an_attempt_with_other_parameters_is_refused_and_changes_nothing(
        self, store: LeaseStore, change: dict[str, object]
    ) -> None:
        """It is a bug of the client; not even the acks it carried are applied."""
        group = workers()
        await opened(store, group, queues(9))
        carried = await one(store, group)
        (first,) = (await ask(store, group, most=4, attempt="a1")).grants
        before = await position(store, group)
        acks = [Settlement(verb=Verb.ACK, lease=carried)]

        with pytest.raises(AttemptMismatch):
            await ask(store, group, attempt="a1", carrying=acks, **{"most": 4, **change})  # type: ignore[arg-type]

        assert await position(store, group) == before
        assert await ack(store, group, carried) is Outcome.APPLIED
        assert await ack(store, group, first.lease._replace(next=first.lease.start + 1)) is Outcome.APPLIED

    @pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK])
    async def test_when_one_message_was_settled_the_attempt_is_a_new_receive(
        self, store: LeaseStore, verb: Verb
    ) -> None:
        """`While nothing changed`: a settled lease is not handed out again as if it lived."""
        group = workers()
        await opened(store, group, queues(9))
        first = await taken(store, group, most=2, attempt="a1")
        await settled(store, group, verb, first[0], delay=HOUR)

        again = await taken(store, group, most=2, attempt="a1")

        assert places(again) == [(QUEUE, 2), (QUEUE, 3)]

    async def test_an_attempt_used_anew_is_repeated_as_well(self, store: LeaseStore) -> None:
        """Its newest leases count, also when all of it happened within one instant of the store's clock."""
        group = workers()
        await opened(store, group, queues(9))
        for lease in await taken(store, group, most=2, attempt="a1"):
            await ack(store, group, lease)
        second = await taken(store, group, most=2, attempt="a1")

        third = await taken(store, group, most=2, attempt="a1")

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
        first = await taken(store, group, most=1, attempt="a1")
        await extend(store, group, first[0], timedelta(minutes=5))

        again = await ask(store, group, most=1, attempt="a1")

        assert singles(again) == first
        assert again.grants[0].leased_until == clock.now + timedelta(minutes=5)

    async def test_a_repeat_does_not_lose_what_the_log_told_with_it(self, store: LeaseStore) -> None:
        """Ends of queues are told once: a step that answers from memory must still take note of them."""
        group = workers()
        await opened(store, group, queues(1))
        first = await taken(store, group, attempt="a1")

        repeated = await taken(store, group, attempt="a1", heads=queues(2))

        assert repeated == first
        assert places(await taken(store, group)) == [(QUEUE, 1)]

    async def test_a_hand_back_by_a_broken_answer_does_not_touch_the_next_one(self, store: LeaseStore) -> None:
        """The first connection broke, the repeat was served: only the repeat's own hand-back counts."""
        group = workers()
        await opened(store, group, queues(2))
        broken = await ask(store, group, attempt="a1")
        served = await ask(store, group, attempt="a1")

        await returned(store, group, broken.grants)
        held = await lag(store, group)
        await returned(store, group, served.grants)

        assert held == (0, 2, 0)
        assert await lag(store, group) == (2, 0, 0)
        assert await deliveries(store, group) == [1]


class PlaceMessageContract:
    async def test_what_nobody_took_is_ready_at_once_and_not_counted(self, store: LeaseStore) -> None:
        """A client that hung up costs no attempt, however often; also when others went on meanwhile."""
        group = workers(max_attempts=2)
        await opened(store, group, queues(4))

        for most in (1, 2, 3, 4, 1, 1):
            await returned(store, group, (await ask(store, group, most=most)).grants)
        first = await ask(store, group, most=2)
        second = await ask(store, group, most=2)
        await returned(store, group, first.grants)
        again = await ask(store, group, most=4)

        assert [grant.delivery for grant in again.grants] == [1]
        assert places(singles(again)) == places(singles(first))
        assert [grant.delivery for grant in second.grants] == [1]

    async def test_a_short_pull_gives_the_rest_back(self, store: LeaseStore) -> None:
        """What the answer could not hold is not leased."""
        group = workers()
        await opened(store, group, queues(9))
        acquired = await ask(store, group, most=6)

        stay = await store.place(group, [Placement(acquired.grants[0], 2)])

        assert list(stay) == [frozenset({0, 1})]
        assert await lag(store, group) == (7, 2, 0)
        assert places(await taken(store, group, most=1)) == [(QUEUE, 2)]

    async def test_hand_backs_in_any_order_never_grant_a_message_twice(self, store: LeaseStore) -> None:
        """Three consumers hang up, the first of them first: each message is there once."""
        group = workers()
        await opened(store, group, queues(3))
        grants = [(await ask(store, group, most=1)).grants for _ in range(3)]

        for number in (0, 2, 1):
            await returned(store, group, grants[number])
        first = (await ask(store, group, most=1)).grants
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
        assert await extend(store, group, singles(acquired)[0], HOUR) is Outcome.LATE_APPLIED

        await returned(store, group, acquired.grants)

        assert await lag(store, group) == (1, 0, 0)
        assert len(await taken(store, group)) == 1


class FilterContract:
    async def test_what_is_not_wanted_is_settled_and_leaves_no_lag(self, store: LeaseStore) -> None:
        """A non-match counts as done for that group."""
        group = workers(tags=frozenset("a"))
        await opened(store, group, queues(4))

        wanted = await placed(store, group, await ask(store, group), {1: None, 3: None})

        assert places(wanted) == [(QUEUE, 1), (QUEUE, 3)]
        assert await lag(store, group) == (0, 2, 0)
        assert await committed(store, group) == 1
        for lease in wanted:
            await ack(store, group, lease)
        assert await committed(store, group) == 4

    async def test_a_hand_back_does_not_take_committed_back(self, store: LeaseStore) -> None:
        """Invariant 8: what was filtered stays done when its neighbours were not taken."""
        group = workers(tags=frozenset("a"))
        await opened(store, group, queues(3))
        acquired = await ask(store, group)
        await placed(store, group, acquired, {1: None, 2: None})
        assert await committed(store, group) == 1

        await returned(store, group, acquired.grants)

        assert await committed(store, group) == 1
        assert await lag(store, group) == (2, 0, 0)
        again = await ask(store, group)
        assert places(singles(again)) == [(QUEUE, 1), (QUEUE, 2)]
        assert [grant.delivery for grant in again.grants] == [1]


class OrderContract:
    async def test_the_next_of_a_key_waits_for_the_one_before(self, store: LeaseStore) -> None:
        """Invariant 19: acked first, then the next; other keys and messages without a key go on."""
        group = workers(is_ordered=True)
        keys = {0: "k", 1: "k", 2: None, 3: "l", 4: "k"}
        await opened(store, group, queues(5))
        acquired = await ask(store, group)
        first = await placed(store, group, acquired, keys)

        nothing = await in_turn(store, group, keys)
        await ack(store, group, first[0])
        second = await in_turn(store, group, keys)

        assert [lease.start for lease in first] == [0, 2, 3]
        assert nothing == []
        assert second == [1]

    async def test_a_nack_blocks_the_key_not_the_queue(self, store: LeaseStore, clock: ManualClock) -> None:
        """One bad customer does not stop the others, and comes again in order."""
        group = workers(is_ordered=True)
        keys = {0: "k", 1: "k", 2: "l"}
        await opened(store, group, queues(2))
        (first,) = await placed(store, group, await ask(store, group), keys)
        await nack(store, group, first, delay=10 * SECOND)

        meanwhile = await placed(store, group, await ask(store, group, heads=queues(3)), keys)
        clock.advance(10)
        again = await placed(store, group, await ask(store, group), keys)
        await ack(store, group, again[0])

        assert places(meanwhile) == [(QUEUE, 2)]
        assert places(again) == [(QUEUE, 0)]
        assert await in_turn(store, group, keys) == [1]

    async def test_an_ended_lease_blocks_the_key_as_well(self, store: LeaseStore, clock: ManualClock) -> None:
        """Silence is a failure like another."""
        group = workers(is_ordered=True, backoff=Backoff(steps=(10 * SECOND,)))
        keys = {0: "k", 1: "k"}
        await opened(store, group, queues(2))
        await in_turn(store, group, keys)
        clock.advance(group.visibility)

        blocked = await in_turn(store, group, keys)
        clock.advance(10)

        assert blocked == []
        assert await in_turn(store, group, keys) == [0]

    async def test_a_dead_message_lets_the_next_of_its_key_go(self, store: LeaseStore) -> None:
        """Acked or dead: both are the end of it."""
        group = workers(is_ordered=True, max_attempts=1)
        keys = {0: "k", 1: "k"}
        await opened(store, group, queues(2))
        (first,) = await placed(store, group, await ask(store, group), keys)
        await nack(store, group, first)
        blocked = await in_turn(store, group, keys)
        for each in await doomed(store, group):
            await store.bury(group, each)

        assert blocked == []
        assert await in_turn(store, group, keys) == [1]

    async def test_while_keys_are_not_known_yet_the_queue_gives_nothing_new(self, store: LeaseStore) -> None:
        """Two concurrent receives: the second must not get a later message of a key that the first is about to get."""
        group = workers(is_ordered=True)
        keys = dict.fromkeys(range(6), "k")
        await opened(store, group, queues(6))
        acquired = await ask(store, group, most=3)

        meanwhile = await ask(store, group, most=3)
        await placed(store, group, acquired, keys)

        assert not meanwhile.grants
        assert meanwhile.state is State.BUSY
        assert await in_turn(store, group, keys, most=3) == []
        await ack(store, group, singles(acquired)[0])
        assert await in_turn(store, group, keys, most=3) == [1]

    @pytest.mark.parametrize("visibility", [SECOND, HOUR], ids=["short lease", "long lease"])
    @pytest.mark.parametrize("looks_before", [False, True], ids=["unseen", "seen"])
    async def test_a_range_whose_gateway_died_before_its_keys_were_known_comes_again_in_order(
        self, store: LeaseStore, clock: ManualClock, visibility: timedelta, looks_before: bool
    ) -> None:
        """As if it had not been granted: nothing twice, nothing out of turn, nothing counted."""
        group = workers(is_ordered=True, visibility=visibility)
        keys = {0: "k", 1: "k", 2: "l"}
        await opened(store, group, queues(3))
        await ask(store, group)
        if looks_before:
            clock.advance(2)
            await lag(store, group)
            await ask(store, workers(is_ordered=True, is_paused=True))
        clock.advance(20)

        again = await ask(store, group)
        wanted = await placed(store, group, again, keys)

        assert {grant.delivery for grant in again.grants} == {1}
        assert sorted(places(wanted)) == [(QUEUE, 0), (QUEUE, 2)]
        assert await lag(store, group) == (0, 2, 1)

    async def test_a_hand_back_grants_a_waiting_message_once(self, store: LeaseStore) -> None:
        """What waits behind its key waits in one place only, also when the range before it was not taken."""
        group = workers(is_ordered=True)
        keys = {0: "k", 1: "k", 2: "l"}
        await opened(store, group, queues(3))
        acquired = await ask(store, group)
        await placed(store, group, acquired, keys)
        await returned(store, group, acquired.grants)

        first = await placed(store, group, await ask(store, group, most=1), keys)
        await ack(store, group, first[0])
        rest = await ask(store, group)

        assert places(first) == [(QUEUE, 0)]
        assert sorted(places(singles(rest))) == [(QUEUE, 1), (QUEUE, 2)]
        assert sorted(places(await placed(store, group, rest, keys))) == [(QUEUE, 1), (QUEUE, 2)]

    async def test_a_key_whose_messages_expired_is_not_blocked(self, store: LeaseStore) -> None:
        """Given back, then lost to retention: the key's next message still comes."""
        group = workers(is_ordered=True)
        keys = {0: "k", 1: "k"}
        await opened(store, group, queues(1))
        acquired = await ask(store, group)
        await placed(store, group, acquired, keys)
        await returned(store, group, acquired.grants)

        assert await in_turn(store, group, keys, heads=queues((1, 2))) == [1]


class MessageOperateContract:
    async def test_a_seek_sweeps_away_leases_failures_and_the_dying(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """From there on everything is as new, and every receipt of before is gone."""
        group = workers(max_attempts=2)
        await opened(store, group, queues(4))
        held, waiting, dying, acked = await taken(store, group)
        await ack(store, group, acked)
        await nack(store, group, waiting, delay=HOUR)
        await nack(store, group, dying)
        await nack(store, group, await one(store, group))

        moved = await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)

        assert moved is not None
        assert [(each.old, each.new) for each in moved] == [(0, 0)]
        assert await lag(store, group) == (4, 0, 0)
        assert not await doomed(store, group)
        assert [await ack(store, group, lease) for lease in (held, waiting, dying)] == [
            Outcome.GONE,
            Outcome.LOST,
            Outcome.LOST,
        ]
        assert [grant.delivery for grant in (await ask(store, group)).grants] == [1]
        assert await lag(store, group) == (0, 4, 0)

    async def test_a_dry_run_moves_nothing(self, store: LeaseStore) -> None:
        """And says what it would do."""
        group = workers()
        await opened(store, group, queues(4))
        lease = await one(store, group)
        before = await position(store, group)

        moved = await store.seek(group, "", {QUEUE: 4}, is_dry_run=True)

        assert moved is not None
        assert [(each.queue, each.old, each.new) for each in moved] == [(QUEUE, 0, 4)]
        assert await position(store, group) == before
        assert await ack(store, group, lease) is Outcome.APPLIED

    async def test_after_a_seek_the_cap_counts_from_nothing(self, store: LeaseStore) -> None:
        """Swept leases hold no places."""
        group = workers(max_in_flight=2)
        await opened(store, group, queues(4))
        await taken(store, group)
        await store.seek(group, "", {QUEUE: 1}, is_dry_run=False)

        assert places(await taken(store, group)) == [(QUEUE, 1), (QUEUE, 2)]

    async def test_pause_stops_grants_not_settlements(self, store: LeaseStore) -> None:
        """Who works finishes; nobody starts."""
        group = workers()
        await opened(store, group, queues(4))
        first, second = await taken(store, group, most=2)

        paused = await ask(store, workers(is_paused=True), carrying=[Settlement(verb=Verb.ACK, lease=first)])

        assert not paused.grants
        assert paused.state is State.PAUSED
        assert [each.outcome for each in paused.settled] == [Outcome.APPLIED]
        assert await nack(store, group, second) is Outcome.APPLIED

    async def test_what_retention_took_is_skipped_and_told(self, store: LeaseStore) -> None:
        """New ones and failed ones alike; never silently."""
        group = workers()
        await opened(store, group, queues(6))
        for lease in await taken(store, group, most=2):
            await nack(store, group, lease)
        told = 0
        found: list[tuple[str, int]] = []

        for _ in range(4):
            acquired = await ask(store, group, heads=queues((4, 6)))
            told += acquired.expired
            found += places(singles(acquired))

        assert found == [(QUEUE, 4), (QUEUE, 5)]
        assert told == 4
        assert await committed(store, group) == 4

    async def test_a_queue_that_came_back_shorter_is_read_from_its_first_message(self, store: LeaseStore) -> None:
        """Recreated: reported, never silently at its end; old receipts are gone."""
        group = workers()
        await opened(store, group, queues(5))
        leases = await taken(store, group)

        acquired = await ask(store, group, heads=queues(2))

        assert acquired.rewound == 5
        assert places(singles(acquired)) == [(QUEUE, 0), (QUEUE, 1)]
        assert await ack(store, group, leases[4]) is Outcome.GONE

    async def test_a_crowded_receive_tells_whether_more_is_ready_and_when_something_will_be(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Others are parked: whoever leaves with messages must tell what the next one waits for."""
        group = workers(visibility=HOUR)
        await opened(store, group, queues(3))
        await nack(store, group, await one(store, group), delay=10 * SECOND)

        more = await store.acquire(_crowded(group, 1))
        last = await store.acquire(_crowded(group, 1))

        assert (more.has_more, last.has_more) == (True, False)
        assert last.next_at == clock.now + 10 * SECOND

    async def test_operators_see_who_holds_messages_of_which_queue(self, store: LeaseStore) -> None:
        """And only while they hold them."""
        group = workers()
        await opened(store, group, queues(1, 1))
        leases = await taken(store, group, polled_by="ada")
        await taken(store, group, polled_by="bob")
        await ack(store, group, leases[0])

        holds = {client.name: list(client.holds) for client in await store.clients(group.name)}

        assert holds == {"ada": [leases[1].queue], "bob": []}


def _crowded(group: Group, most: int, heads: Mapping[str, Head] | None = None) -> Acquire:
    return Acquire(group=group, client="", most=most, visibility=group.visibility, heads=heads or {}, is_crowded=True)


class MessageLeaseContract(
    GrantContract,
    SettleMessageContract,
    ExtendContract,
    RetryContract,
    DeadMessageContract,
    CapContract,
    MessageAttemptContract,
    PlaceMessageContract,
    FilterContract,
    OrderContract,
    MessageOperateContract,
):
    """An adapter passes by providing `store`, empty, and `clock`, the ManualClock that the store goes by."""
