"""Lease store contract, message mode: seek, pause, retention, and what operators see."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import Group
from mqgate.core.lease import (
    AcquireRequest,
    OffsetRange,
    QueueBounds,
    ReceiveState,
    Settlement,
    SettlementOutcome,
    Verb,
)
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import BOUNDS_TRUSTED, QUEUE, ack, ask, committed, exhausted, extend, nack, opened, position
from mqgate.testing.message_leasing import HOUR, SECOND, lag, one, places, report_pulled, singles, taken, workers
from mqgate.testing.samples import queues


class MessageOperateContract:
    async def test_a_seek_revokes_leases_failures_and_exhausted_messages(self, store: LeaseStore) -> None:
        """After a seek everything is delivered as new, and all earlier receipts are gone."""
        group = workers(max_attempts=2)
        await opened(store, group, queues(4))
        held, waiting, exhausted_message, acked = await taken(store, group)
        await ack(store, group, acked)
        await nack(store, group, waiting, delay=HOUR)
        await nack(store, group, exhausted_message)
        await nack(store, group, await one(store, group))

        moved = await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)

        assert moved is not None
        assert [(seek_result.old, seek_result.new) for seek_result in moved] == [(0, 0)]
        assert await lag(store, group) == (4, 0, 0)
        assert not await exhausted(store, group)
        assert [await ack(store, group, lease) for lease in (held, waiting, exhausted_message)] == [
            SettlementOutcome.GONE,
            SettlementOutcome.LOST,
            SettlementOutcome.LOST,
        ]
        assert [grant.delivery for grant in (await ask(store, group)).grants] == [1]
        assert await lag(store, group) == (0, 4, 0)

    async def test_a_dry_run_changes_nothing(self, store: LeaseStore) -> None:
        """Operators check a seek before they run it."""
        group = workers()
        await opened(store, group, queues(4))
        lease = await one(store, group)
        before = await position(store, group)

        moved = await store.seek(group, "", {QUEUE: 4}, is_dry_run=True)

        assert moved is not None
        assert [(seek_result.queue, seek_result.old, seek_result.new) for seek_result in moved] == [(QUEUE, 0, 4)]
        assert await position(store, group) == before
        assert await ack(store, group, lease) is SettlementOutcome.APPLIED

    async def test_revoked_leases_do_not_count_towards_the_cap(self, store: LeaseStore) -> None:
        """After a seek the group must be able to receive up to its in-flight cap."""
        group = workers(max_in_flight=2)
        await opened(store, group, queues(4))
        await taken(store, group)
        await store.seek(group, "", {QUEUE: 1}, is_dry_run=False)

        assert places(await taken(store, group)) == [(QUEUE, 1), (QUEUE, 2)]

    async def test_a_pause_stops_grants_but_not_settlements(self, store: LeaseStore) -> None:
        """Consumers must be able to complete their work."""
        group = workers()
        await opened(store, group, queues(4))
        first, second = await taken(store, group, max_count=2)

        paused = await ask(store, workers(is_paused=True), carrying=[Settlement(verb=Verb.ACK, lease=first)])

        assert not paused.grants
        assert paused.state is ReceiveState.PAUSED
        assert [result.outcome for result in paused.settled] == [SettlementOutcome.APPLIED]
        assert await nack(store, group, second) is SettlementOutcome.APPLIED

    async def test_a_seek_counts_messages_settled_out_of_order(self, store: LeaseStore) -> None:
        """Operators must see how many messages are skipped and how many are delivered again."""
        group = workers()
        await opened(store, group, queues(8))
        leases = await taken(store, group, max_count=6)
        for offset in (0, 2, 3, 5):
            await ack(store, group, leases[offset])
        await nack(store, group, leases[4], delay=HOUR)

        counted = []
        for to in (0, 1, 3, 7, 8):
            moved = await store.seek(group, "", {QUEUE: to}, is_dry_run=True)
            assert moved is not None
            counted += [(seek_result.old, seek_result.skipped, seek_result.repeated) for seek_result in moved]

        # Of the six granted offsets, 1 and 4 are not settled. Offsets 6 and 7 were never granted.
        assert counted == [(1, 0, 4), (1, 0, 3), (1, 1, 2), (1, 3, 0), (1, 4, 0)]

    async def test_messages_deleted_by_retention_are_skipped_and_reported(self, store: LeaseStore) -> None:
        """New and failed messages must both be reported."""
        group = workers()
        await opened(store, group, queues(6))
        for lease in await taken(store, group, max_count=2):
            await nack(store, group, lease)
        expired = 0
        found: list[tuple[str, int]] = []

        for _ in range(4):
            acquired = await ask(store, group, bounds=queues((4, 6)))
            expired += acquired.expired
            found += places(singles(acquired))

        assert found == [(QUEUE, 4), (QUEUE, 5)]
        assert expired == 4
        assert await committed(store, group) == 4

    async def test_an_emptied_queue_is_reported_although_it_has_no_new_message(self, store: LeaseStore) -> None:
        """The next receive must report the loss, once, and not only after the next publish."""
        group = workers()
        await opened(store, group, queues(6))
        held = await taken(store, group, max_count=2)

        acquired = [await ask(store, group, bounds=queues((6, 6))) for _ in range(2)]

        assert [list(result.lost) for result in acquired] == [[OffsetRange(QUEUE, 2, 6)], []]
        assert await committed(store, group) == 0
        assert [await ack(store, group, lease) for lease in held] == [SettlementOutcome.APPLIED] * 2
        assert await committed(store, group) == 6

    @pytest.mark.parametrize("delay", [None, HOUR])
    async def test_failed_messages_deleted_by_retention_are_reported_at_once(
        self, store: LeaseStore, delay: timedelta | None
    ) -> None:
        """A receive must not wait for the backoff of a message that no longer exists."""
        group = workers()
        await opened(store, group, queues(3))
        held, *failed = await taken(store, group)
        for lease in failed:
            await nack(store, group, lease, delay=delay)

        await store.positions(group, "", queues((3, 3)))
        left = await lag(store, group)
        acquired = await ask(store, group)
        await ack(store, group, held)
        after = await ask(store, group)

        assert left == (0, 1, 0)
        assert list(acquired.lost) == [OffsetRange(QUEUE, 1, 2), OffsetRange(QUEUE, 2, 3)]
        assert (acquired.grants, acquired.state) == ([], ReceiveState.BUSY)
        assert (after.lost, after.state, after.next_at) == ([], ReceiveState.OK, None)
        found = await position(store, group)
        assert (found.committed, found.expired) == (3, 2)

    async def test_a_lease_of_a_deleted_message_lasts_until_it_expires(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The consumer has the message and may settle it. After that there is nothing to wait for."""
        group = workers(backoff=Backoff(steps=(HOUR,)))
        await opened(store, group, queues(2))
        acked, failed = await taken(store, group)

        held = await ask(store, group, bounds=queues((2, 2)))
        outcome = await ack(store, group, acked)
        clock.advance(group.visibility)
        left = await lag(store, group)
        ended = await ask(store, group)

        assert (held.lost, held.state) == ([], ReceiveState.BUSY)
        assert outcome is SettlementOutcome.APPLIED
        assert left == (0, 0, 0)
        assert (list(ended.lost), ended.state) == ([OffsetRange(QUEUE, 1, 2)], ReceiveState.OK)
        assert await ack(store, group, failed) is SettlementOutcome.GONE

    async def test_retention_deletes_waiting_messages_of_a_key(self, store: LeaseStore) -> None:
        """In ordered groups the remaining messages of the key must continue."""
        group = workers(is_ordered=True)
        await opened(store, group, queues(4))
        keys = dict.fromkeys(range(4), "k")
        (first,) = await report_pulled(store, group, await ask(store, group), keys)
        await nack(store, group, first, delay=HOUR)

        await store.positions(group, "", queues((3, 4)))
        left = await lag(store, group)
        acquired = await ask(store, group)

        assert left == (0, 0, 1)
        assert [span.start for span in acquired.lost] == [0, 1, 2]
        assert places(await report_pulled(store, group, acquired, keys)) == [(QUEUE, 3)]

    async def test_deleted_messages_of_a_closed_queue_are_reported_when_it_opens(self, store: LeaseStore) -> None:
        """The state of a closed queue must not change."""
        group = workers()
        await opened(store, group, queues(1))
        await nack(store, group, await one(store, group), delay=HOUR)

        closed = await ask(store, group, bounds=queues((1, 1)), closed=[QUEUE])
        opens = await ask(store, group)

        assert (closed.expired, opens.expired) == (0, 1)

    async def test_a_receipt_of_a_deleted_message_is_gone(self, store: LeaseStore, clock: ManualClock) -> None:
        """No other consumer had the message, so it is not lost."""
        group = workers()
        await opened(store, group, queues(1))
        (lease,) = await taken(store, group)
        clock.advance(group.visibility)

        acquired = await ask(store, group, bounds=queues((1, 1)))

        assert acquired.expired == 1
        assert await ack(store, group, lease) is SettlementOutcome.GONE
        assert await nack(store, group, lease) is SettlementOutcome.GONE

    async def test_a_truncated_queue_restarts_at_its_first_message(self, store: LeaseStore, clock: ManualClock) -> None:
        """The rewind must be reported, and old receipts are gone."""
        group = workers()
        await opened(store, group, queues(5))
        leases = await taken(store, group)
        clock.advance(BOUNDS_TRUSTED)

        acquired = await ask(store, group, bounds=queues(2))

        assert acquired.rewound == 5
        assert places(singles(acquired)) == [(QUEUE, 0), (QUEUE, 1)]
        assert await ack(store, group, leases[4]) is SettlementOutcome.GONE

    async def test_a_receive_with_other_waiters_returns_has_more_and_next_at(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """The gateway must know whether and when to wake the next parked receive."""
        group = workers(visibility=HOUR)
        await opened(store, group, queues(3))
        await nack(store, group, await one(store, group), delay=10 * SECOND)

        more = await store.acquire(_with_other_waiters(group, 1))
        last = await store.acquire(_with_other_waiters(group, 1))

        assert (more.has_more, last.has_more) == (True, False)
        assert last.next_at == clock.now + 10 * SECOND

    async def test_operators_see_which_clients_have_leases_in_which_queue(self, store: LeaseStore) -> None:
        """During an incident, this is the first question."""
        group = workers()
        await opened(store, group, queues(1, 1))
        leases = await taken(store, group, polled_by="ada")
        await taken(store, group, polled_by="bob")
        await ack(store, group, leases[0])

        holds = {client.name: list(client.holds) for client in await store.clients(group.name)}

        assert holds == {"ada": [leases[1].queue], "bob": []}

    async def test_a_client_with_one_leased_message_is_listed_for_its_queue(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Other messages of the grant may have expired unnoticed."""
        group = workers()
        await opened(store, group, queues(2))
        leases = await taken(store, group, polled_by="ada", visibility=SECOND)
        await extend(store, group, leases[1], 60 * SECOND)
        seen = []

        for seconds in (0, 1.2, 60):
            clock.advance(seconds)
            seen += [list(client.holds) for client in await store.clients(group.name)]

        assert seen == [[QUEUE], [QUEUE], []]


def _with_other_waiters(
    group: Group, max_count: int, bounds: Mapping[str, QueueBounds] | None = None
) -> AcquireRequest:
    return AcquireRequest(
        group=group,
        client="",
        max_count=max_count,
        visibility=group.visibility,
        bounds=bounds or {},
        has_other_waiters=True,
    )
