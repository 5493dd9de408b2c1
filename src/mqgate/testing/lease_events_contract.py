"""Lease store contract: inputs of statistics: grant times, expired leases and messages deleted by retention."""

from dataclasses import replace
from datetime import timedelta

from mqgate.core.lease import OffsetRange, QueueBounds, SettlementOutcome
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import QUEUE, ack, ask, exhausted, extend, granted, nack, opened, report_short_pull
from mqgate.testing.message_leasing import HOUR, one, returned, taken, workers
from mqgate.testing.samples import a_group, queues

__all__ = ["LeaseEventsContract", "MessageEventsContract"]

_MOMENT = timedelta(seconds=1)


class LeaseEventsContract:
    async def test_a_repeated_attempt_returns_the_grant_time_of_its_lease(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Receipts contain it, and a repeated attempt must return the same receipt, also after an extend."""
        group = a_group()
        await opened(store, group, queues(9))
        began = clock.now
        first = await granted(store, group, attempt="a1")
        clock.advance(10)
        await extend(store, group, first.lease, timedelta(minutes=5))

        again = await granted(store, group, attempt="a1")

        assert (first.granted_at, again.granted_at) == (began, began)

    async def test_a_redelivered_batch_reports_how_many_messages_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """It is reported once, for the whole earlier batch, although fewer messages may be granted now."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, max_count=4)
        clock.advance(group.visibility)

        second = await granted(store, group, max_count=2, attempt="a1")
        again = await granted(store, group, max_count=2, attempt="a1")

        assert [grant.lease_expired for grant in (first, second, again)] == [0, 4, 0]

    async def test_a_settled_or_released_batch_is_not_reported_as_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Acks, nacks, late acks, releases and seeks are recorded as events of their own."""
        group = a_group()
        await opened(store, group, queues(9))
        grants = []

        await ack(store, group, (await granted(store, group, max_count=4)).lease, through=1)
        grants.append(await granted(store, group))
        await nack(store, group, grants[-1].lease)
        grants.append(await granted(store, group))
        clock.advance(group.visibility)
        assert await nack(store, group, grants[-1].lease) is SettlementOutcome.LATE_APPLIED
        grants.append(await granted(store, group))
        await report_short_pull(store, group, grants[-1], grants[-1].lease.start)
        grants.append(await granted(store, group))
        await store.seek(group, "", {QUEUE: 5}, is_dry_run=False)
        clock.advance(group.visibility)
        grants.append(await granted(store, group))

        assert [grant.lease_expired for grant in grants] == [0] * 5

    async def test_an_expired_lease_is_reported_once_although_the_next_is_released(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The event is recorded when it is reported, whether or not the messages are delivered."""
        group = a_group()
        await opened(store, group, queues(9))
        await granted(store, group, max_count=4)
        clock.advance(group.visibility)
        second = await granted(store, group)
        await report_short_pull(store, group, second, second.lease.start)

        third = await granted(store, group)

        assert (second.lease_expired, third.lease_expired) == (4, 0)

    async def test_an_exhausted_message_reports_whether_its_lease_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Every call must report it until the message is settled dead. A nacked message has no expired lease."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        await granted(store, group)
        clock.advance(group.visibility)

        (lease_expired,) = await exhausted(store, group)
        (again,) = await exhausted(store, group)
        await store.settle_dead(group, lease_expired)
        await nack(store, group, (await granted(store, group)).lease)
        (nacked,) = await exhausted(store, group)

        assert (lease_expired.is_lease_expired, again.is_lease_expired, nacked.is_lease_expired) == (True, True, False)

    async def test_messages_deleted_by_retention_are_reported_with_their_offsets(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """This includes a batch whose lease had expired: the rest of it is granted again."""
        group = a_group()
        await opened(store, group, queues(9))
        await granted(store, group, max_count=4)
        clock.advance(group.visibility)

        acquired = await ask(store, group, bounds={QUEUE: QueueBounds(3, 9)})

        assert list(acquired.lost) == [OffsetRange(QUEUE, 0, 3)]
        assert [(grant.lease.start, grant.lease_expired) for grant in acquired.grants] == [(3, 1)]


class MessageEventsContract:
    async def test_a_repeated_attempt_returns_the_grant_times_of_its_leases(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Receipts contain them, and a repeated attempt must return the same receipts, also after an extend."""
        group = workers()
        await opened(store, group, queues(9))
        began = clock.now
        first = await ask(store, group, max_count=2, attempt="a1")
        clock.advance(10)
        await extend(store, group, first.grants[0].lease._replace(next=1), timedelta(minutes=5))

        again = await ask(store, group, max_count=2, attempt="a1")

        assert [grant.granted_at for grant in (*first.grants, *again.grants)] == [began, began]

    async def test_redelivered_messages_report_whether_their_leases_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Nacked neighbours are a separate range, so a count is enough. It is reported once."""
        group = workers()
        await opened(store, group, queues(5))
        leases = await taken(store, group)
        await nack(store, group, leases[2])
        await ack(store, group, leases[4])
        clock.advance(group.visibility)

        second = await ask(store, group, attempt="a1")
        again = await ask(store, group, attempt="a1")

        reported = [(grant.lease.start, grant.lease.next, grant.lease_expired) for grant in second.grants]
        assert reported == [(0, 2, 2), (2, 3, 0), (3, 4, 1)]
        assert [grant.lease_expired for grant in again.grants] == [0, 0, 0]

    async def test_a_settled_or_released_message_is_not_reported_as_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """A late ack, a late nack and a release after the report must not be reported again."""
        group = workers()
        await opened(store, group, queues(3))
        late, nacked, again = await taken(store, group)
        clock.advance(group.visibility)
        assert await ack(store, group, late) is SettlementOutcome.LATE_APPLIED
        assert await nack(store, group, nacked) is SettlementOutcome.LATE_APPLIED

        second = (await ask(store, group)).grants
        await returned(store, group, second)
        third = (await ask(store, group)).grants

        assert [(grant.lease.start, grant.lease_expired) for grant in second] == [(nacked.start, 0), (again.start, 1)]
        assert sum(grant.lease_expired for grant in third) == 0

    async def test_a_late_extended_lease_is_reported_once_when_it_finally_expires(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The receive that is granted the message must report it."""
        group = workers()
        await opened(store, group, queues(1))
        lease = await one(store, group)
        clock.advance(group.visibility)
        await ask(store, replace(group, is_paused=True))
        assert await extend(store, group, lease, _MOMENT) is SettlementOutcome.LATE_APPLIED
        clock.advance(_MOMENT)

        (only,) = (await ask(store, group)).grants

        assert only.lease_expired == 1

    async def test_an_exhausted_message_reports_whether_its_lease_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Every call must report it until the message is settled dead. A nacked message has no expired lease."""
        group = workers(max_attempts=1)
        await opened(store, group, queues(2))
        first, second = await taken(store, group)
        await nack(store, group, second)
        clock.advance(HOUR)

        reported = {message.lease.start: message.is_lease_expired for message in await exhausted(store, group)}

        assert reported == {first.start: True, second.start: False}

    async def test_messages_deleted_by_retention_are_reported_with_their_offsets(self, store: LeaseStore) -> None:
        """New messages are one range, and failed ones are reported individually."""
        group = workers()
        await opened(store, group, queues(9))
        leases = await taken(store, group, max_count=3)
        for lease in leases:
            await nack(store, group, lease)

        lost: list[OffsetRange] = []
        for _ in range(4):
            lost += (await ask(store, group, max_count=1, bounds={QUEUE: QueueBounds(8, 9)})).lost

        assert sorted(lost) == [
            OffsetRange(QUEUE, 0, 1),
            OffsetRange(QUEUE, 1, 2),
            OffsetRange(QUEUE, 2, 3),
            OffsetRange(QUEUE, 3, 8),
        ]
